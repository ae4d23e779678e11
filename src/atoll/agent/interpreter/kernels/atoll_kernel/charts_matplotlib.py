"""What a matplotlib figure shows, read from its axes: type, title, axes, series with their data.

seaborn draws with matplotlib, so its figures are read here too.
"""

from __future__ import annotations

from typing import Any

from .plain import plain

MAX_POINTS = 5_000
"""Points per series; more are left out, and `data.truncated` says so."""


def chart(figure: Any) -> dict[str, Any]:
    """Return the chart of *figure*: of its first axes with data, others in ``subplots``."""
    found = [_axes(axes) for axes in figure.get_axes() if axes.get_label() != "<colorbar>"]
    known = [one for one in found if one["data"]["series"]] or found
    if not known:
        return _named("unknown", "", {"series": []}, {})
    first, rest = known[0], known[1:]
    suptitle = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else ""
    if suptitle and not first["title"]:
        first["title"] = suptitle
    if rest:
        first["layout"]["subplots"] = rest
    return first


def _named(kind: str, title: str, data: dict[str, Any], layout: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": kind, "title": title, "data": data, "layout": layout, "library": "matplotlib",
    }  # fmt: skip


def _axes(axes: Any) -> dict[str, Any]:
    found = ((kind, series) for kind, read in _READERS if (series := read(axes)))
    kind, series = next(found, ("unknown", []))
    layout = {
        "xLabel": axes.get_xlabel(),
        "yLabel": axes.get_ylabel(),
        "xScale": axes.get_xscale(),
        "yScale": axes.get_yscale(),
        "xTicks": _ticks(axes.get_xticklabels()),
        "yTicks": _ticks(axes.get_yticklabels()),
    }
    truncated = any(one.pop("cut", False) for one in series)
    data = {"series": series, **({"truncated": True} if truncated else {})}
    return _named(kind, axes.get_title(), data, layout)


def _ticks(labels: Any) -> list[str]:
    return [text for label in list(labels)[:100] if (text := label.get_text())]


def _points(label: Any, x: Any, y: Any) -> dict[str, Any]:
    label, x, y = str(label), list(x), list(y)
    return {
        "label": "" if label.startswith("_") else label,
        "x": plain(x[:MAX_POINTS]),
        "y": plain(y[:MAX_POINTS]),
        "cut": len(x) > MAX_POINTS,
    }


def _pie(axes: Any) -> list[dict[str, Any]]:
    wedges = [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]
    texts = [text.get_text() for text in axes.texts]
    labels = [patch.get_label() for patch in wedges]
    if not wedges:
        return []
    given = [label for label in labels if not label.startswith("_")]
    return [
        {
            "label": "",
            "labels": given or texts[: len(wedges)],
            "values": [plain((patch.theta2 - patch.theta1) / 360) for patch in wedges],
        }
    ]


def _heatmap(axes: Any) -> list[dict[str, Any]]:
    found = []
    for image in axes.images:
        array = image.get_array()
        if array is not None and array.ndim == 2:
            found.append(_matrix(array))
    for mesh in axes.collections:
        if type(mesh).__name__ == "QuadMesh" and mesh.get_array() is not None:
            array = mesh.get_array()
            if array.ndim == 1:  # older than 3.8
                height, width, _ = mesh.get_coordinates().shape
                array = array.reshape(height - 1, width - 1)
            found.append(_matrix(array))
    return found


def _matrix(array: Any) -> dict[str, Any]:
    rows, columns = array.shape
    cut = rows * columns > MAX_POINTS
    shown = array[:70, :70] if cut else array
    return {"label": "", "z": plain(shown.tolist()), "shape": [rows, columns], "cut": cut}


def _bars(axes: Any) -> list[tuple[str, list[Any]]]:
    """Return the groups of rectangles that stand on an axis, with their labels."""
    found = []
    for container in axes.containers:
        if type(container).__name__ == "BarContainer":
            patches = [
                patch for patch in container.patches if patch.get_width() or patch.get_height()
            ]
            found.append((str(container.get_label()), patches))
    return [(label, patches) for label, patches in found if patches]


def _is_histogram(patches: list[Any]) -> bool:
    """Whether bars touch each other, as those of a histogram do."""
    edges = sorted((patch.get_x(), patch.get_x() + patch.get_width()) for patch in patches)
    width = max(abs(right - left) for left, right in edges) or 1.0
    touching = [abs(a[1] - b[0]) < width * 1e-6 for a, b in zip(edges, edges[1:])]
    return len(touching) > 1 and all(touching)


def _histogram(axes: Any) -> list[dict[str, Any]]:
    groups = _bars(axes)
    if not groups or not all(_is_histogram(patches) for _, patches in groups):
        return []
    found = []
    for label, patches in groups:
        points = _points(
            label,
            [patch.get_x() + patch.get_width() / 2 for patch in patches],
            [patch.get_height() for patch in patches],
        )
        points["edges"] = plain(
            [patches[0].get_x(), *(patch.get_x() + patch.get_width() for patch in patches)]
        )
        found.append(points)
    return found


def _bar(axes: Any) -> list[dict[str, Any]]:
    found = []
    groups = _bars(axes)
    for label, patches in groups:
        flat = all(patch.get_x() == 0 for patch in patches) and len(patches) > 1
        ticks = _ticks(axes.get_yticklabels() if flat else axes.get_xticklabels())
        if flat:  # lies on its side
            places = [patch.get_y() + patch.get_height() / 2 for patch in patches]
            sizes = [patch.get_width() for patch in patches]
        else:
            places = [patch.get_x() + patch.get_width() / 2 for patch in patches]
            sizes = [patch.get_height() for patch in patches]
        named = len(groups) == 1 and len(ticks) == len(places)
        points = _points(label, ticks if named else places, sizes)
        if flat:
            points["orientation"] = "horizontal"
        found.append(points)
    return found


def _scatter(axes: Any) -> list[dict[str, Any]]:
    found = []
    for collection in axes.collections:
        if type(collection).__name__ == "PathCollection":
            offsets = collection.get_offsets()
            if len(offsets):
                found.append(_points(collection.get_label(), offsets[:, 0], offsets[:, 1]))
    return found


def _line(axes: Any) -> list[dict[str, Any]]:
    found = []
    for line in axes.lines:
        x, y = line.get_xdata(orig=True), line.get_ydata(orig=True)
        if len(x):
            found.append(_points(line.get_label(), x, y))
    return found


def _marked(axes: Any) -> list[dict[str, Any]]:
    """Return lines that are points only: ``plot(x, y, "o")``."""
    lines = [line for line in axes.lines if len(line.get_xdata())]
    only = [line.get_linestyle() in ("None", "none", "", " ") for line in lines]
    return _line(axes) if lines and all(only) else []


_READERS = (
    ("pie", _pie),
    ("heatmap", _heatmap),
    ("histogram", _histogram),
    ("bar", _bar),
    ("scatter", _scatter),
    ("scatter", _marked),
    ("line", _line),
)
"""The first that finds something decides: a histogram with a curve over it is a histogram."""
