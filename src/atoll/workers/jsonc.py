"""JSON with comments and trailing commas, read so that every value knows where it stands.

Configuration errors name file, line and column. The standard decoder gives a position only for
syntax errors; here each value's position is kept by its path, so that a wrong *type* can be
pointed at too. Strings and numbers are left to the standard decoder.
"""

import json
import re
from typing import Any

Path = tuple[str | int, ...]
Position = tuple[int, int]
"""Line and column, both starting at 1."""

_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_DECODER = json.JSONDecoder()
_MAX_DEPTH = 100
"""Deeper nesting is refused: it is no configuration, and would exhaust Python's stack."""


class JsoncError(ValueError):
    """A syntax error, with its position."""

    def __init__(self, message: str, position: Position) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


def parse(text: str) -> tuple[Any, dict[Path, Position]]:
    """Return the value of *text* and the position of every value in it, by path.

    Raises:
        JsoncError: *text* is not JSON, even with comments and trailing commas allowed.
    """
    reader = _Reader(text)
    value = reader.value((), reader.skip(0))
    end = reader.skip(reader.end)
    if end < len(text):
        raise reader.error("more text after the value", end)
    return value, reader.positions


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.positions: dict[Path, Position] = {}

    def where(self, index: int) -> Position:
        line_start = self.text.rfind("\n", 0, index) + 1
        return self.text.count("\n", 0, index) + 1, index - line_start + 1

    def error(self, message: str, index: int) -> JsoncError:
        return JsoncError(message, self.where(index))

    def skip(self, index: int) -> int:
        match = _SPACE.match(self.text, index)
        end = match.end() if match else index
        if self.text.startswith("/*", end):
            raise self.error("this comment is never closed", end)
        return end

    def value(self, path: Path, index: int) -> Any:
        self.positions[path] = self.where(index)
        if len(path) > _MAX_DEPTH:
            raise self.error("nested too deeply", index)
        start = self.text[index : index + 1]
        if start == "{":
            return self._object(path, index + 1)
        if start == "[":
            return self._array(path, index + 1)
        if start == '"':
            return self._string(index)
        match = _SCALAR.match(self.text, index)
        if not match:
            found = repr(start) if start else "the end of the file"
            raise self.error(f"expected a value, found {found}", index)
        self.end = match.end()
        try:
            return json.loads(match[0])
        except ValueError:  # thousands of digits
            raise self.error("this number is too long", index) from None

    def _string(self, index: int) -> str:
        try:
            text, self.end = _DECODER.raw_decode(self.text, index)
        except json.JSONDecodeError as error:
            raise self.error(error.msg, error.pos) from None
        if not _encodable(text):
            raise self.error("half of a surrogate pair is no character", index)
        return str(text)

    def _object(self, path: Path, index: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        index = self.skip(index)
        while not self.text.startswith("}", index):
            if not self.text.startswith('"', index):
                raise self.error('expected a key in double quotes or "}"', index)
            key_at = index
            key = self._string(index)
            if key in found:
                raise self.error(f'the key "{key}" stands here twice', key_at)
            index = self.skip(self.end)
            if not self.text.startswith(":", index):
                raise self.error(f'expected ":" after the key "{key}"', index)
            found[key] = self.value((*path, key), self.skip(index + 1))
            index = self._separator(index=self.skip(self.end), closing="}")
        self.end = index + 1
        return found

    def _array(self, path: Path, index: int) -> list[Any]:
        found: list[Any] = []
        index = self.skip(index)
        while not self.text.startswith("]", index):
            found.append(self.value((*path, len(found)), index))
            index = self._separator(index=self.skip(self.end), closing="]")
        self.end = index + 1
        return found

    def _separator(self, *, index: int, closing: str) -> int:
        if self.text.startswith(",", index):
            return self.skip(index + 1)
        if not self.text.startswith(closing, index):
            raise self.error(f'expected "," or "{closing}"', index)
        return index
