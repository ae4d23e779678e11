"""Figures of matplotlib: drawn without a screen, shown at the end of the code or by ``show()``.

This module is also matplotlib's backend: ``module://atoll_kernel.figures``.
"""

from __future__ import annotations

import io
import sys
from typing import Any, Callable

from . import charts_matplotlib

BACKEND = "module://atoll_kernel.figures"
DPI = 100

_emit: list[Callable[[Any], None]] = []


def connect(emit: Callable[[Any], None]) -> None:
    """Have figures displayed by *emit*."""
    _emit[:] = [emit]


def prepare() -> None:
    """Make this the backend, if matplotlib is loaded and has none that was asked for."""
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is not None:
        chosen = dict.__getitem__(matplotlib.rcParams, "backend")
        if not isinstance(chosen, str) or chosen.lower() == "agg":
            matplotlib.rcParams["backend"] = BACKEND
            if "matplotlib.pyplot" in sys.modules:
                sys.modules["matplotlib.pyplot"].switch_backend(BACKEND)


def forms(value: Any) -> dict[str, Any] | None:
    """Return the forms of a figure; it then counts as shown."""
    if not _is_figure(value):
        return None
    forget(value)
    return {"png": png(value), "chart": charts_matplotlib.chart(value)}


def png(figure: Any) -> bytes:
    """Return the figure as a PNG image."""
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=figure.dpi or DPI, bbox_inches="tight")
    return target.getvalue()


def show(*_: Any, **__: Any) -> None:
    """Display all open figures, and close them."""
    for figure in open_figures():
        if _emit:
            _emit[0](figure)
        forget(figure)


def open_figures() -> list[Any]:
    """Return the figures that pyplot holds open and that have something on them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    found = [pyplot.figure(number) for number in pyplot.get_fignums()]
    return [figure for figure in found if figure.get_axes() or figure.texts or figure.images]


def forget(figure: Any) -> None:
    """Close a figure that pyplot holds open."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None and getattr(figure, "number", None) in pyplot.get_fignums():
        pyplot.close(figure)


def close_all() -> None:
    """Close what is left, also empty figures."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


def _is_figure(value: Any) -> bool:
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def __getattr__(name: str) -> Any:
    """Answer as a backend of matplotlib, which is not loaded before somebody uses it."""
    if name not in ("FigureCanvas", "FigureManager"):
        raise AttributeError(name)
    from matplotlib.backend_bases import FigureManagerBase
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    class FigureManager(FigureManagerBase):
        @classmethod
        def pyplot_show(cls, *args: Any, **options: Any) -> None:
            show(*args, **options)

    class FigureCanvas(FigureCanvasAgg):
        manager_class = FigureManager

    globals()["FigureCanvas"], globals()["FigureManager"] = FigureCanvas, FigureManager
    return globals()[name]
