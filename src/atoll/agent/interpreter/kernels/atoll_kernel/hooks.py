"""Changes to a library at the moment that code imports it: until then it costs nothing.

There is one: ``show()`` of plotly displays a figure here, where its own wants packages of Jupyter.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any, Callable

Change = Callable[[ModuleType], None]


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: Any, change: Change) -> None:
        self._inner, self._change = inner, change

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._inner.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._change(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls *change* with the module *name* once it is loaded."""

    def __init__(self, name: str, change: Change) -> None:
        self._name, self._change = name, change

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's own spec with a loader that calls us."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._change)
        return spec


def install(display: Callable[[Any], None]) -> None:
    """Have figures of plotly shown by *display*."""

    def change(module: ModuleType) -> None:
        def show(figure: Any, *_: Any, **__: Any) -> None:
            if isinstance(figure, dict):
                figure = sys.modules["plotly.graph_objects"].Figure(figure)
            display(figure)

        module.show = show  # type: ignore[attr-defined]

    sys.meta_path.insert(0, AfterImport("plotly.io", change))
