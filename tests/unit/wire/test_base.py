from datetime import timedelta
from typing import Any

import msgspec
import pytest

from atoll.wire.base import Done, Empty, Request, to_ms


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (0, 0),
        (1.5, 1_500),
        (timedelta(minutes=1), 60_000),
        ("500ms", 500),
        ("30s", 30_000),
        (" 5 m ", 300_000),
        ("1.5h", 5_400_000),
        ("2d", 172_800_000),
    ],
)
def test_durations_of_every_written_form(duration: Any, expected: int) -> None:
    assert to_ms(duration) == expected


@pytest.mark.parametrize(
    "duration",
    [-1, float("inf"), float("nan"), "", "5", "5 w", "-1s", "s", "\N{ARABIC-INDIC DIGIT ONE}s"],
)
def test_other_durations_are_refused(duration: Any) -> None:
    with pytest.raises(ValueError):
        to_ms(duration)


@pytest.mark.parametrize("duration", [True, b"5", bytearray(b"5"), None])
def test_what_is_no_number_is_no_duration_either(duration: Any) -> None:
    with pytest.raises(TypeError):
        to_ms(duration)


class Sample(Request, frozen=True, kw_only=True):
    """A request with a field of two words."""

    two_words: int = 0


def test_names_are_camel_case_on_the_wire() -> None:
    assert msgspec.json.encode(Sample(two_words=1)) == b'{"twoWords":1}'
    assert Done().to_dict() == {"success": True}


def test_a_misspelt_option_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"twoWord":1}', type=Sample)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"x":1}', type=Empty)


def test_a_newer_engines_fields_are_ignored() -> None:
    assert msgspec.json.decode(b'{"success":true,"later":1}', type=Done) == Done()
