"""The fields of one request, checked where they are used.

The engine has checked types already; the agent does it again, because a wrong value must become
an error of this one operation and never an exception with a traceback.
"""

from collections.abc import Mapping
from typing import Any, Final

from atoll import errors
from atoll.agent.files import pathnames

MAX_INTEGER: Final = (1 << 63) - 1


class Fields:
    """Typed access to a HEADER of an ``fs.*`` operation."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self._header = header

    def path(self, name: str = "path") -> bytes:
        """Return an absolute path; a relative one starts at the header's ``cwd``."""
        return self._absolute(self.text(name), name)

    def paths(self, name: str) -> list[bytes]:
        """Return a list of absolute paths."""
        return [self._absolute(text, name) for text in self.texts(name) or ()]

    def _absolute(self, text: str, name: str) -> bytes:
        if not text:
            raise _invalid(name, "is empty")
        base = pathnames.to_bytes(self.optional_text("cwd") or "/")
        return pathnames.join(base, pathnames.to_bytes(text))

    def text(self, name: str) -> str:
        """Return a string that must be there."""
        value = self.optional_text(name)
        if value is None:
            raise _invalid(name, "is missing")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a string or None."""
        value = self._header.get(name)
        if value is None or isinstance(value, str):
            return value
        raise _invalid(name, "must be text")

    def texts(self, name: str) -> list[str] | None:
        """Return a list of strings or None."""
        value = self._header.get(name)
        if value is None or (isinstance(value, list) and all(isinstance(v, str) for v in value)):
            return value
        raise _invalid(name, "must be a list of texts")

    def integer(self, name: str, default: int, *, low: int = 0, high: int = MAX_INTEGER) -> int:
        """Return a number between *low* and *high*."""
        value = self.optional_integer(name, low=low, high=high)
        return default if value is None else value

    def optional_integer(self, name: str, *, low: int = 0, high: int = MAX_INTEGER) -> int | None:
        """Return a number between *low* and *high*, or None."""
        value = self._header.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise _invalid(name, "must be a whole number")
        if not low <= value <= high:
            raise _invalid(name, f"must be from {low} to {high}")
        return value

    def mode(self) -> int | None:
        """Return the permission bits asked for, or None."""
        return self.optional_integer("mode", high=0o7777)

    def name_or_number(self, name: str) -> str | None:
        """Return the text of a user's or group's name or number, or None."""
        value = self._header.get(name)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return str(value)
        text = self.text(name)
        if not text or ":" in text:
            raise _invalid(name, "is not the name of a user or group")
        return text

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean."""
        value = self._header.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise _invalid(name, "must be true or false")
        return value


def _invalid(name: str, problem: str) -> errors.ValidationFailedError:
    return errors.ValidationFailedError(f"{name} {problem}", context={"field": name})
