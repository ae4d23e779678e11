"""Charts of plotly and altair: both describe themselves as data, which is read here."""

from __future__ import annotations

import base64
import sys
from typing import Any

PLOTLY = {
    "bar": "bar",
    "pie": "pie",
    "histogram": "histogram",
    "heatmap": "heatmap",
    "histogram2d": "heatmap",
    "imshow": "heatmap",
}
ALTAIR = {
    "bar": "bar", "line": "line", "area": "line", "trail": "line", "point": "scatter",
    "circle": "scatter", "square": "scatter", "arc": "pie", "rect": "heatmap",
}  # fmt: skip

_FORMATS = {
    "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q",
    "f4": "f", "f8": "d",
}  # fmt: skip


def forms(value: Any) -> dict[str, Any] | None:
    """Return the forms of a plotly figure or an altair chart; None for anything else."""
    if isinstance(value, type):
        return None
    modules = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    if "plotly" in modules and hasattr(value, "to_plotly_json"):
        return _plotly(value)
    if any(kind.__name__ == "TopLevelMixin" for kind in type(value).__mro__):  # altair's charts
        return _altair(value)
    return None


def _plotly(figure: Any) -> dict[str, Any]:
    told = figure.to_plotly_json()
    html = figure.to_html(full_html=False, include_plotlyjs="cdn")
    return {"html": html, "json": told, "chart": plotly_chart(told)}


def of_mime(mime: str, told: Any) -> dict[str, Any] | None:
    """Return the forms of a figure that a library displays as its own type of JSON."""
    if mime == "application/vnd.plotly.v1+json":
        found = {"json": told, "chart": plotly_chart(told)}
        plotly = sys.modules.get("plotly.io")
        if plotly is not None:
            found["html"] = plotly.to_html(told, full_html=False, include_plotlyjs="cdn")
        return found
    if mime.startswith("application/vnd.vegalite.") and isinstance(told, dict):
        return {"json": told, "chart": altair_chart(told)}
    return None


def plotly_chart(told: dict[str, Any]) -> dict[str, Any]:
    """Return the chart that a plotly figure in JSON shows."""
    traces = [_trace(trace) for trace in told.get("data", ())]
    layout = told.get("layout", {})
    kind = plotly_type(told["data"][0]) if told.get("data") else "unknown"
    return {
        "type": kind,
        "title": _text(layout.get("title")),
        "data": {"series": traces},
        "layout": {
            "xLabel": _text(layout.get("xaxis", {}).get("title")),
            "yLabel": _text(layout.get("yaxis", {}).get("title")),
        },
        "library": "plotly",
    }


def plotly_type(trace: dict[str, Any]) -> str:
    """Return our word for the type of a trace."""
    kind = trace.get("type", "scatter")
    if kind in ("scatter", "scattergl"):
        mode = trace.get("mode") or "lines"
        return "line" if "lines" in mode else "scatter"
    return PLOTLY.get(kind, "unknown")


def _trace(trace: dict[str, Any]) -> dict[str, Any]:
    found = {"label": trace.get("name") or ""}
    for name in ("x", "y", "z", "labels", "values"):
        if trace.get(name) is not None:
            found[name] = _decoded(trace[name])
    return found


def _decoded(value: Any) -> Any:
    """Return the numbers of plotly's packed arrays."""
    if not isinstance(value, dict) or "bdata" not in value:
        return value.tolist() if hasattr(value, "tolist") else value
    letter: Any = _FORMATS.get(value.get("dtype", ""))
    if letter is None:
        return value
    numbers: list[Any] = (
        memoryview(base64.b64decode(value["bdata"])).cast("B").cast(letter).tolist()
    )
    shape = [int(size) for size in str(value.get("shape", "")).split(",") if size.strip()]
    if len(shape) != 2:
        return numbers
    return [numbers[row * shape[1] : (row + 1) * shape[1]] for row in range(shape[0])]


def _text(title: Any) -> str:
    found = title.get("text") if isinstance(title, dict) else title
    return str(found) if found else ""


def _altair(figure: Any) -> dict[str, Any]:
    told = figure.to_dict()
    html = figure.to_html(fullhtml=False, output_div="vis")
    return {"html": html, "json": told, "chart": altair_chart(told)}


def altair_chart(told: dict[str, Any]) -> dict[str, Any]:
    """Return the chart that a Vega-Lite description shows: its first layer with a mark."""
    view = _first_view(told)
    mark = view.get("mark", {})
    name = mark.get("type", "") if isinstance(mark, dict) else str(mark)
    encoding = view.get("encoding", {})
    kind = ALTAIR.get(name, "unknown")
    if kind == "bar" and any(encoding.get(axis, {}).get("bin") for axis in ("x", "y")):
        kind = "histogram"
    rows = _rows(told, view)
    series = {
        axis: [row.get(field["field"]) for row in rows]
        for axis, field in encoding.items()
        if isinstance(field, dict) and field.get("field") and rows
    }
    return {
        "type": kind,
        "title": _text(told.get("title")),
        "data": {"series": [{"label": "", **series}] if series else []},
        "layout": {
            "xLabel": _axis(encoding, "x"),
            "yLabel": _axis(encoding, "y"),
        },
        "library": "altair",
    }


def _first_view(told: dict[str, Any]) -> dict[str, Any]:
    for name in ("layer", "hconcat", "vconcat", "concat"):
        for part in told.get(name, ()):
            found = _first_view(part)
            if found.get("mark"):
                return {
                    **found,
                    "encoding": {**told.get("encoding", {}), **found.get("encoding", {})},
                }
    spec = told.get("spec")
    return _first_view(spec) if isinstance(spec, dict) else told


def _rows(told: dict[str, Any], view: dict[str, Any]) -> list[dict[str, Any]]:
    data = view.get("data") or told.get("data") or {}
    rows = data.get("values") or told.get("datasets", {}).get(data.get("name"), ())
    return [row for row in rows if isinstance(row, dict)][:5_000]


def _axis(encoding: dict[str, Any], name: str) -> str:
    field = encoding.get(name)
    if not isinstance(field, dict):
        return ""
    title = field.get("title") or (field.get("axis") or {}).get("title")
    return str(title or field.get("field") or field.get("aggregate") or "")
