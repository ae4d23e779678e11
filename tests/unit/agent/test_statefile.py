import json
import os
import zlib

import pytest

from atoll import errors
from atoll.agent import statefile
from atoll.agent.descriptors import read_most, spill
from atoll.agent.shell.launching import State
from atoll.agent.shell.states import empty_state


def state(value: str) -> State:
    made = empty_state("/tmp")
    made["variables"]["V"] = ("x", value)
    plain: State = json.loads(json.dumps(made))
    return plain


@pytest.mark.parametrize("value", ["", "\xff\n\0", "x" * 300_000])
def test_a_state_comes_back_as_it_was(value: str) -> None:
    assert statefile.read(spill(statefile.encode(state(value)))) == state(value)


def test_a_large_state_is_compressed() -> None:
    assert len(statefile.encode(state("x" * 300_000))) < 10_000


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", b"\x78broken", zlib.compress(b"[" * (1 << 20))],
    ids=["empty", "cut", "list", "fields", "stream", "nested"],
)
def test_a_damaged_state_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(errors.InternalError):
        statefile.read(spill(data))


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(b" " * (200 << 20), 9)
    with pytest.raises(errors.InternalError):
        statefile.parse(bomb)


def test_changes_apply_over_a_state_but_not_to_a_fresh_shell() -> None:
    changed = statefile.with_changes(state("old"), {"V": "néw", "W": None})
    assert changed
    assert changed["variables"]["V"] == ("x", "n\xc3\xa9w")
    assert changed["unset"] == ["W"]
    assert statefile.with_changes(None, {"V": "1"}) is None


def test_text_and_bytes_translate_both_ways() -> None:
    for text in ("é\udcff/x", ""):
        assert statefile.from_latin(statefile.to_latin(text)) == text
    fd = spill(b"abc")
    assert read_most(fd, 2) == b"ab"
    os.close(fd)
