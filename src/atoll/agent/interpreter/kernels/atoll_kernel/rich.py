"""A value in all forms it has: text always, and HTML, images, LaTeX, JSON, a chart where there are.

Forms are named as on the wire. One that is too large is left out and named in ``truncated`` with
its size; what is broken in a value costs that form, never the result.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Callable

from . import charts, figures
from .plain import encodable, plain, text

MAX_FORM = 16 << 20
"""Bytes of one form in JSON. An image of that size is no longer looked at, it is downloaded."""

MAX_TEXT = 1 << 20
"""Characters of a plain text; the beginning is kept."""

MIME = {
    "text/plain": "text",
    "text/html": "html",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/svg+xml": "svg",
    "text/latex": "latex",
    "text/markdown": "markdown",
    "application/javascript": "javascript",
    "application/json": "json",
    "application/pdf": "pdf",
}
_METHODS = {
    "_repr_html_": "html",
    "_repr_png_": "png",
    "_repr_jpeg_": "jpeg",
    "_repr_svg_": "svg",
    "_repr_latex_": "latex",
    "_repr_markdown_": "markdown",
    "_repr_javascript_": "javascript",
    "_repr_json_": "json",
    "_repr_pdf_": "pdf",
}

Forms = dict[str, Any]


def special(value: Any) -> Forms | None:
    """Return the forms of what we know better than the value itself does, such as charts."""
    for known in (figures.forms, charts.forms, _frame):
        try:
            if found := known(value):
                return {"text": text(value, 10_000), **found}
        except Exception:
            continue
    return None


def forms(value: Any) -> Forms:
    """Return the forms of *value* by its own methods; without IPython."""
    found = special(value)
    if found is not None:
        return found
    found = {"text": text(value, MAX_TEXT)}
    if isinstance(value, type):
        return found
    bundle = _call(getattr(value, "_repr_mimebundle_", None), include=None, exclude=None)
    if isinstance(bundle, tuple):
        bundle = bundle[0]
    if isinstance(bundle, dict):
        found.update(of_mime(bundle))
    for method, name in _METHODS.items():
        form = _call(getattr(type(value), method, None) and getattr(value, method))
        if isinstance(form, tuple):  # with metadata
            form = form[0]
        if form is not None and name not in found:
            found[name] = form
    return _with_json(found, value)


def _call(method: Callable[..., Any] | None, **options: Any) -> Any:
    try:
        return method(**options) if callable(method) else None
    except Exception:
        return None


def of_mime(bundle: dict[str, Any]) -> Forms:
    """Return the forms of a MIME bundle; types without a name of their own are in ``data``."""
    found: Forms = {}
    for mime, value in bundle.items():
        if name := MIME.get(mime):
            found[name] = value
        elif figure := _figure(mime, value):
            found.update(figure)
        else:
            found.setdefault("data", {})[mime] = value
    return found


def _figure(mime: str, value: Any) -> Forms | None:
    try:
        return charts.of_mime(mime, value)
    except Exception:  # of a later version of its library
        return None


def of_value(value: Any, bundle: dict[str, Any]) -> Forms:
    """Return the forms of *value* that IPython's *bundle* has, and ours."""
    found = of_mime(bundle)
    found.setdefault("text", text(value, MAX_TEXT))
    return _with_json(found, value)


def _with_json(found: Forms, value: Any) -> Forms:
    if type(value) in (dict, list, tuple) and "json" not in found:
        found["json"] = value
    return found


def _frame(value: Any) -> Forms | None:
    """Return the forms of a pandas DataFrame or Series: with its data, not only a table."""
    kind = type(value)
    if kind.__module__.partition(".")[0] != "pandas" or kind.__name__ not in (
        "DataFrame",
        "Series",
    ):
        return None
    frame = value.to_frame() if kind.__name__ == "Series" else value
    shown = frame.head(1000)
    data = {
        "columns": [str(name) for name in shown.columns],
        "index": shown.index.tolist(),
        "data": shown.to_numpy().tolist(),
        "shape": list(frame.shape),
    }
    html = value._repr_html_() if kind.__name__ == "DataFrame" else None
    return {"data": data, **({"html": html} if html else {})}


def encode(found: Forms, **fields: Any) -> bytes:
    """Return the line of a result: strict JSON, whatever the forms hold."""
    told: dict[str, Any] = {**fields}
    cut: dict[str, int] = {}
    for name, value in found.items():
        form = _form(name, value)
        if name == "text" and isinstance(form, str) and len(form) > MAX_TEXT:
            cut[name] = len(form)
            form = form[:MAX_TEXT]
        size = len(json.dumps(form, allow_nan=False))
        if size > MAX_FORM:
            cut[name] = size
        else:
            told[name] = form
    if cut:
        told["truncated"] = cut
        told.setdefault("text", "")
    return json.dumps(told, allow_nan=False).encode()


def _form(name: str, value: Any) -> Any:
    if name in ("png", "jpeg", "pdf") and isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if name in ("json", "chart", "data"):
        return plain(value)
    return encodable(value.replace("\r\n", "\n") if isinstance(value, str) else text(value))
