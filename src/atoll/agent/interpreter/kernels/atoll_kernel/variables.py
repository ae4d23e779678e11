"""Variables from outside, and what is told of those that code has made."""

from __future__ import annotations

import base64
import io
import json
import types
from typing import Any

from .plain import text

MAX_PREVIEW = 200
MAX_LISTED = 1_000


def assign(namespace: dict[str, Any], given: dict[str, dict[str, Any]]) -> None:
    """Set variables: each is ``{"json": value}``, ``{"bytes": base64}`` or ``{"parquet": base64}``.

    Raises:
        Exception: one cannot be made, as a frame without pandas and pyarrow.
    """
    made = {name: _value(form) for name, form in given.items()}
    namespace.update(made)


def _value(form: dict[str, Any]) -> Any:
    if "json" in form:
        return json.loads(json.dumps(form["json"]))
    if "bytes" in form:
        return base64.b64decode(form["bytes"])
    import pandas

    return pandas.read_parquet(io.BytesIO(base64.b64decode(form["parquet"])))


def describe(namespace: dict[str, Any], hidden: set[str]) -> list[dict[str, Any]]:
    """Return name, type, shape, size and preview of the user's variables, by name."""
    names = [
        name
        for name, value in list(namespace.items())
        if isinstance(name, str)
        and not name.startswith("_")
        and name not in hidden
        and not isinstance(value, types.ModuleType)
    ]
    return [_described(name, namespace[name]) for name in sorted(names)[:MAX_LISTED]]


def _described(name: str, value: Any) -> dict[str, Any]:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return {
        "name": name,
        "type": f"{module}{kind.__qualname__}",
        "shape": _shape(value),
        "preview": _preview(value),
    }


def _shape(value: Any) -> list[int] | None:
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            return [int(size) for size in shape]
        if isinstance(value, (str, bytes, list, tuple, dict, set, frozenset)):
            return [len(value)]
    except Exception:
        return None
    return None


def _preview(value: Any) -> str:
    try:
        if isinstance(value, (str, bytes, list, tuple)) and len(value) > MAX_PREVIEW:
            return text(value[:MAX_PREVIEW], MAX_PREVIEW) + "…"
        if isinstance(value, (dict, set, frozenset)) and len(value) > MAX_PREVIEW:
            return f"<{type(value).__name__} of {len(value)}>"
    except Exception:
        return text(value, MAX_PREVIEW)
    return text(value, MAX_PREVIEW)
