"""Base classes of all structs on the wire, and the few types they share.

Field names are snake case in Python and camel case on the wire. Requests refuse unknown fields,
so a misspelt option is an error; results and events ignore them, so an older client reads a
newer engine. Durations are whole milliseconds on the wire, in fields whose Python name ends in
``_ms``; a property without the suffix gives seconds.
"""

import re
from datetime import timedelta
from typing import Annotated, Any

import msgspec

Duration = float | timedelta | str
"""What every public call takes as a duration: seconds, a timedelta, or "30s" "5m" "1h" "2d"."""

Whole = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
"""An integer of a request. What Python alone could hold ends at the first float or C function."""

Millis = Annotated[int, msgspec.Meta(ge=0, le=100 * 365 * 24 * 3600 * 1000)]
"""A duration of a request in milliseconds: up to 100 years, what a date can be moved by."""

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def to_ms(duration: Duration) -> int:
    """Return *duration* in whole milliseconds.

    Raises:
        ValueError: negative, not finite, or not one of the written forms.
        TypeError: of another type.
    """
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        match = _DURATION.fullmatch(duration)
        if not match:
            raise ValueError(f"{duration!r} is not a duration; write 30s, 5m, 1h, 2d or 500ms")
        return round(float(match[1]) * _UNIT_MS[match[2]])
    elif isinstance(duration, bool | bytes | bytearray):
        raise TypeError(f"{duration!r} is not a duration; write 30, 30s, 5m, 1h, 2d or 500ms")
    else:
        seconds = float(duration)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a duration must be finite and not negative, not {duration!r}")
    return round(seconds * 1000)


class Request(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename="camel",
):
    """Base of every request body."""


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of every result."""

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form: camel case, ISO 8601 timestamps, durations in milliseconds."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built


class Empty(Request, frozen=True, kw_only=True):
    """A request without fields."""


class Done(Result, frozen=True, kw_only=True):
    """A result that says no more than that the call succeeded."""

    success: bool = True
