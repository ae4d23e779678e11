"""Python values as JSON: arguments and results of an object's methods, and what it stores. Pure.

JSON values stand for themselves. What JSON lacks is an object with the key ``$``: bytes, tuples,
sets, dates, numbers it cannot hold, dictionaries with other keys than text, and results of the
SDK, which come back as what they were. Anything else is refused by name: a value that silently
became something else would be found much later.
"""

import base64
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from atoll.errors import ValidationFailedError
from atoll.wire.base import Result

TAG = "$"
MAX_DEPTH = 200
"""Levels of nesting: below what any JSON reader on the way allows."""

_LARGEST = (1 << 53) - 1


def encode(value: Any, what: str = "the value") -> Any:
    """Return *value* as plain JSON data.

    Args:
        value: what is sent or kept.
        what: its name in errors.

    Raises:
        ValidationFailedError: it, or something in it, has no such form.
    """
    return _encode(value, what, MAX_DEPTH)


def _encode(value: Any, what: str, depth: int) -> Any:
    if depth == 0:
        raise _refused(what, "it is nested too deeply, or contains itself")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int(value)
        return number if abs(number) <= _LARGEST else _tagged("int", hex(number))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _tagged("float", repr(float(value)))
    if isinstance(value, str):
        return _text(value, what)
    for kind, form in _FORMS:
        if isinstance(value, kind):
            return form(value, what, depth - 1)
    raise _refused(what, f"{type(value).__name__} is not data")


def _text(value: str, what: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _refused(what, "its text is not Unicode (a lone surrogate)") from error
    return str(value)


def _items(value: Any, what: str, depth: int) -> list[Any]:
    return [_encode(item, f"{what}[{index}]", depth) for index, item in enumerate(value)]


def _mapping(value: Mapping[Any, Any], what: str, depth: int) -> Any:
    if all(isinstance(key, str) for key in value) and TAG not in value:
        return {
            _text(key, what): _encode(item, f"{what}[{key!r}]", depth)
            for key, item in value.items()
        }
    pairs = [
        [_encode(key, f"a key of {what}", depth), _encode(item, f"{what}[{key!r}]", depth)]
        for key, item in value.items()
    ]
    return _tagged("map", pairs)


def _struct(value: Result, what: str, depth: int) -> Any:  # noqa: ARG001 - one form for all
    name = type(value).__name__
    if name not in _results():
        raise _refused(what, f"{name} is not a result of this SDK")
    return _tagged(name, msgspec.to_builtins(value))


_Form = Callable[[Any, str, int], Any]

_FORMS: tuple[tuple[type | tuple[type, ...], _Form], ...] = (
    (list, _items),
    (Mapping, _mapping),
    (tuple, lambda value, what, depth: _tagged("tuple", _items(value, what, depth))),
    ((set, frozenset), lambda value, what, depth: _tagged("set", _items(value, what, depth))),
    (
        (bytes, bytearray, memoryview),
        lambda value, _what, _depth: _tagged("bytes", base64.b64encode(value).decode()),
    ),
    (datetime, lambda value, _what, _depth: _tagged("time", value.isoformat())),
    (timedelta, lambda value, _what, _depth: _tagged("duration", value.total_seconds())),
    (Result, _struct),
)


def _tagged(kind: str, value: Any) -> dict[str, Any]:
    return {TAG: kind, "v": value}


def _refused(what: str, why: str) -> ValidationFailedError:
    return ValidationFailedError(
        f"{what[:200]} cannot be sent or stored: {why}",
        context={"field": what[:200]},
        suggestion="use None, bool, int, float, str, bytes, dates, lists, tuples, sets, "
        "dictionaries, and results of the SDK",
    )


def decode(data: Any) -> Any:
    """Return the value that `encode` made *data* of.

    Raises:
        ValidationFailedError: *data* is not such data.
    """
    try:
        return _decode(data)
    except (KeyError, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ValidationFailedError(f"malformed value: {error}") from error


def _decode(data: Any) -> Any:
    if isinstance(data, list):
        return [_decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    if TAG not in data:
        return {key: _decode(item) for key, item in data.items()}
    kind, value = data[TAG], data["v"]
    if kind in _READERS:
        return _READERS[kind](value)
    cls = _results().get(kind)
    # One of a newer version: its wire form is still readable.
    return msgspec.convert(value, cls) if cls else value


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "int": lambda value: int(value, 16),
    "float": float,
    "map": lambda value: {_decode(key): _decode(item) for key, item in value},
    "tuple": lambda value: tuple(_decode(item) for item in value),
    "set": lambda value: {_decode(item) for item in value},
    "bytes": lambda value: base64.b64decode(value, validate=True),
    "time": datetime.fromisoformat,
    "duration": lambda value: timedelta(seconds=value),
}


def _results() -> dict[str, type[Result]]:
    """Return the results of this package by name; those of users are theirs to encode."""
    found: dict[str, type[Result]] = {}
    open_classes = [Result]
    while open_classes:
        cls = open_classes.pop()
        open_classes += cls.__subclasses__()
        if cls.__module__.startswith("atoll."):
            found.setdefault(cls.__name__, cls)
    return found
