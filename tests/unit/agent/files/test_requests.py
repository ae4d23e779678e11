from typing import Any

import pytest

from atoll import errors
from atoll.agent.files.requests import Fields


def test_relative_paths_start_at_the_cwd() -> None:
    assert Fields({"path": "a/b", "cwd": "/work"}).path() == b"/work/a/b"
    assert Fields({"path": "a"}).path() == b"/a"


@pytest.mark.parametrize(
    "header", [{}, {"path": None}, {"path": ""}, {"path": 3}, {"path": "a\0b"}]
)
def test_a_path_must_be_one(header: dict[str, Any]) -> None:
    with pytest.raises(errors.ValidationFailedError):
        Fields(header).path()


@pytest.mark.parametrize("value", ["1", 1.0, True, -1, 1 << 63])
def test_numbers_are_whole_and_in_range(value: Any) -> None:
    with pytest.raises(errors.ValidationFailedError) as caught:
        Fields({"offset": value}).integer("offset", 0)
    assert caught.value.context == {"field": "offset"}


@pytest.mark.parametrize("value", [1, "true", []])
def test_flags_are_booleans(value: Any) -> None:
    with pytest.raises(errors.ValidationFailedError):
        Fields({"recursive": value}).flag("recursive")


@pytest.mark.parametrize("value", ["", "a:b", -1, True, 1.5])
def test_owners_are_names_or_numbers(value: Any) -> None:
    with pytest.raises(errors.ValidationFailedError):
        Fields({"owner": value}).name_or_number("owner")


def test_absent_fields_have_their_defaults() -> None:
    fields = Fields({"limit": None})
    assert fields.integer("limit", 7) == 7
    assert fields.texts("include") is None
    assert fields.flag("recursive", default=True)
    assert fields.mode() is None
    assert fields.name_or_number("owner") is None


def test_a_list_holds_texts_only() -> None:
    assert Fields({"paths": ["a", "/b"], "cwd": "/w"}).paths("paths") == [b"/w/a", b"/b"]
    with pytest.raises(errors.ValidationFailedError):
        Fields({"paths": ["a", 1]}).paths("paths")
