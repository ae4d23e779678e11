import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.wire import inert
from atoll.wire.inert import Inert

COMMANDS = [
    b"\x1b]0;title\x07", b"\x1b[2J", b"\x1b[6n", b"\x1b]52;c;eA==\x07", b"\x1bP+q\x1b\\", b"\x1bc",
    b"\x08\x08", b"\x9b2J".decode("latin-1").encode(), b"\x0e", b"\x7f", b"\0", b"\x1b[?1049h",
]  # fmt: skip


def shown(data: bytes, at: int) -> bytes:
    stream = Inert()
    return stream.feed(data[:at]) + stream.feed(data[at:]) + stream.end()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_reaches_a_terminal_wherever_it_is_cut(command: bytes) -> None:
    for at in range(len(command) + 1):
        told = shown(b"a" + command + b"z", at)
        assert not {0x1B, 0x07, 0x08, 0x0E, 0x7F, 0} & set(told)
        assert b"\xc2\x9b" not in told
        assert told[:1] + told[-1:] == b"az"


def test_colours_and_lines_pass_as_they_are() -> None:
    text = "\x1b[1;31mrot\x1b[0m\tä\r\n\x1b[38:5:9m".encode()
    for at in range(len(text) + 1):
        assert shown(text, at) == text


@given(st.binary(max_size=200), st.integers(0, 200))
def test_whatever_is_cut_anywhere_is_shown_as_if_it_was_whole(data: bytes, at: int) -> None:
    assert shown(data, at) == shown(data, 0)
    assert b"\x1b" not in shown(data, at).replace(b"\x1b[m", b"").replace(b"\x1b[0m", b"") or (
        b"\x1b[" in data
    )


def test_an_endless_colour_is_none() -> None:
    assert b"\x1b" not in shown(b"\x1b[" + b"1;" * 5_000 + b"H", 3_000)


def test_a_line_has_no_control_character_and_keeps_its_letters() -> None:
    assert inert.line("a ä 漢\x1b[31m\n\x9b") == "a ä 漢\\x1b[31m\\n\\x9b"
    assert inert.lines("a\x07\nb") == "a\\x07\nb"
