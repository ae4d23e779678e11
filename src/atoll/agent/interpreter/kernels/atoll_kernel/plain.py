"""Python values as strict JSON, whatever they are: NaN, bytes, circular, deep, huge, hostile."""

from __future__ import annotations

import base64
import datetime
import math
from typing import Any

MAX_DEPTH = 32
MAX_ITEMS = 10_000
"""Members of all containers together that are looked at."""


class _Budget:
    def __init__(self) -> None:
        self.left = MAX_ITEMS
        self.open: set[int] = set()

    def spend(self) -> bool:
        """Count one member; return whether there was room for it."""
        self.left -= 1
        return self.left >= 0


def plain(value: Any) -> Any:
    """Return *value* as what JSON can hold; nothing in it can make this raise."""
    return _plain(value, _Budget(), MAX_DEPTH)


def _plain(value: Any, budget: _Budget, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 64 else str(value)
    if kind is float:
        return value if math.isfinite(value) else None
    if kind in (bytes, bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        return _container(value, budget, depth)
    return _other(value, budget, depth)


def _container(value: Any, budget: _Budget, depth: int) -> Any:
    if id(value) in budget.open or depth == 0:
        return "…"
    budget.open.add(id(value))
    try:
        if isinstance(value, dict):
            found = {}
            for key, item in list(value.items()):
                if not budget.spend():
                    break
                found[key if type(key) is str else text(key)] = _plain(item, budget, depth - 1)
            return found
        items = []
        for item in list(value):
            if not budget.spend():
                break
            items.append(_plain(item, budget, depth - 1))
        return items
    finally:
        budget.open.discard(id(value))


def _other(value: Any, budget: _Budget, depth: int) -> Any:
    try:
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        if hasattr(value, "tolist") and hasattr(value, "dtype"):  # numpy: scalars and arrays
            return _plain(value.tolist(), budget, depth)
        if isinstance(value, (int, float, str)):  # subclasses, such as enumerations
            base = int if isinstance(value, int) else float if isinstance(value, float) else str
            return _plain(base(value), budget, depth)
    except Exception:
        return text(value)
    return text(value)


def text(value: Any, most: int = 1 << 20) -> str:
    """Return ``repr(value)``, or a word about why there is none, cut at *most* characters."""
    try:
        found = repr(value)
    except Exception as error:
        return f"<{type(value).__name__} object: its repr raised {type(error).__name__}>"
    if not isinstance(found, str):
        return f"<{type(value).__name__} object>"
    return found if len(found) <= most else found[:most] + "…"


def encodable(value: str) -> str:
    """Return *value* without half characters, which UTF-8 cannot hold."""
    return value.encode("utf-8", "replace").decode("utf-8")
