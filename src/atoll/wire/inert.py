"""Text of a sandbox on somebody's terminal: it may be coloured, it can do nothing else. Pure.

A terminal takes commands in what it shows: to rename its window, to move back over what stands
there, to type an answer to who reads its input. What comes from a sandbox is hostile, so of all
control sequences only colours and line ends pass; the rest is shown as text.
"""

import re

_MOST = 64
"""Bytes of a colour that is not complete yet; none has as many."""

_PASSED = re.compile(rb"\x1b\[[0-9;:]*m|[\n\r\t]")
_BEGUN = re.compile(rb"(?:\x1b(?:\[[0-9;:]*)?|\xc2)$")
_CONTROL = re.compile(rb"\x1b\[[0-9;:]*m|[\x00-\x1f\x7f]|\xc2[\x80-\x9f]")


class Inert:
    """Makes a stream of bytes inert, wherever it is cut."""

    def __init__(self) -> None:
        self._kept = b""

    def feed(self, data: bytes) -> bytes:
        """Return what can be shown of *data* and what was kept before it."""
        data = self._kept + data
        begun = _BEGUN.search(data[-_MOST:])
        self._kept = begun[0] if begun else b""
        return _shown(data[: len(data) - len(self._kept)])

    def end(self) -> bytes:
        """Return what is left."""
        kept, self._kept = self._kept, b""
        return _shown(kept)


def line(text: str) -> str:
    """Return *text* without any control character, line ends and colours included."""
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def lines(text: str) -> str:
    """Return *text* with its line ends, and no other control character."""
    return "\n".join(line(one) for one in text.split("\n"))


def _shown(data: bytes) -> bytes:
    return _CONTROL.sub(_replaced, data)


def _replaced(match: re.Match[bytes]) -> bytes:
    if _PASSED.fullmatch(match[0]):
        return match[0]
    if match[0][0] == 0xC2:
        return b"\\x%02x" % match[0][1]
    return b"^" + bytes([match[0][0] ^ 0x40])


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "replace").decode("ascii") if letter != " " else " "
