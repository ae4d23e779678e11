r"""Shell words: how values are written for the shell, and read back from what bash prints.

Everything is bytes; a state keeps them as latin-1 text so that it is JSON whatever the bytes are.
`quote` never puts a raw newline into a word, so restoring a state takes no line of its own and
line numbers of the user's text stay right. `read_word` understands every form in which bash 4.2
to 5.3 prints a word (`declare -p`, `trap -p`): '…', "…", $'…', \x and runs of them.
"""

import re
from typing import Final

_PLAIN: Final = re.compile(rb"[A-Za-z0-9_./:=,+-]+")
_INTERNAL: Final = (b"\x01", b"\x7f")
"""Characters that bash quotes with inside itself; it loses them next to broken UTF-8."""

_ESCAPES: Final = (
    (b"\\", b"\\\\"),
    (b"'", b"\\'"),
    (b"\n", b"\\n"),
    *((char, b"\\%03o" % char[0]) for char in _INTERNAL),
)
_DOUBLE: Final = re.compile(rb"\\([$`\"\\\n])|\\\n")
_ANSI: Final = re.compile(
    rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|c.|.)", re.DOTALL
)
_ANSI_LETTERS: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"e": b"\x1b",
    b"E": b"\x1b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}
_STRETCH: Final = re.compile(rb"[^'\"$\\\s()\]]+")


class MalformedError(ValueError):
    """The dump is not what bash prints: cut short, or written by something else."""


def quote(value: bytes) -> bytes:
    """Return one line of shell source that is exactly *value*, as one word."""
    if _PLAIN.fullmatch(value):
        return value
    if not any(char in value for char in (b"\n", b"'", *_INTERNAL)):
        return b"'" + value + b"'"
    for raw, escaped in _ESCAPES:
        value = value.replace(raw, escaped)
    return b"$'" + value + b"'"


def quote_text(value: bytes) -> bytes:
    """Return *value* in single quotes, with its newlines: the lines of a text stay countable."""
    return b"'" + value.replace(b"'", b"'\\''") + b"'"


def read_word(data: bytes, position: int) -> tuple[bytes, int]:
    """Return the word that starts at *position* and the position after it.

    A word ends at unquoted white space, at a parenthesis, at `]`, or with the data.

    Raises:
        MalformedError: a quote is not closed.
    """
    parts: list[bytes] = []
    while position < len(data):
        if stretch := _STRETCH.match(data, position):
            parts.append(stretch[0])
            position = stretch.end()
            continue
        part, following = _read_quoted(data, position)
        if following == position:
            break
        parts.append(part)
        position = following
    return b"".join(parts), position


def _read_quoted(data: bytes, position: int) -> tuple[bytes, int]:
    lead = data[position : position + 2]
    if lead[:1] == b"'":
        end = _find_quote(data, position + 1, b"'")
        return data[position + 1 : end], end + 1
    if lead[:1] == b'"':
        end = _find_unescaped(data, position + 1, b'"')
        return _DOUBLE.sub(_unescape_double, data[position + 1 : end]), end + 1
    if lead == b"$'":
        end = _find_unescaped(data, position + 2, b"'")
        return _ANSI.sub(_unescape_ansi, data[position + 2 : end]), end + 1
    if lead[:1] == b"\\":
        return data[position + 1 : position + 2], position + 2
    if lead[:1] == b"$":
        return b"$", position + 1
    return b"", position


def _find_quote(data: bytes, position: int, mark: bytes) -> int:
    end = data.find(mark, position)
    if end < 0:
        raise MalformedError("a quote is not closed")
    return end


def _find_unescaped(data: bytes, position: int, mark: bytes) -> int:
    end = _find_quote(data, position, mark)
    while (escape := data.find(b"\\", position, end)) >= 0:
        position = escape + 2
        if position > end:
            end = _find_quote(data, position, mark)
    return end


def _unescape_double(match: re.Match[bytes]) -> bytes:
    return b"" if match[1] == b"\n" else match[1]


def _unescape_ansi(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1] in b"01234567":
        return bytes([int(code, 8) & 0xFF])
    if code[:1] == b"x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[:1] in b"uU" and len(code) > 1:
        return chr(int(code[1:], 16)).encode("utf-8", "surrogatepass")
    if code[:1] == b"c" and len(code) > 1:
        return bytes([code[1] & 0x1F])
    return _ANSI_LETTERS.get(code, code)
