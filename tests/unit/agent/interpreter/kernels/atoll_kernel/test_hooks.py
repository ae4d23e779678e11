import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from atoll.agent.interpreter.kernels.atoll_kernel import hooks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    return tmp_path


def test_a_module_is_changed_when_it_is_imported_and_not_before(folder: Path) -> None:
    (folder / "hooked_module.py").write_text("value = 1\n")
    seen: list[ModuleType] = []
    sys.meta_path.insert(0, hooks.AfterImport("hooked_module", seen.append))
    assert seen == []
    import hooked_module  # type: ignore[import-not-found]

    assert seen == [hooked_module]
    assert (hooked_module.value, Path(hooked_module.__file__).name) == (1, "hooked_module.py")


def test_figures_of_plotly_are_displayed(folder: Path) -> None:
    for name in ("plotly", "plotly.io", "plotly.graph_objects"):
        sys.modules.pop(name, None)
    (folder / "plotly").mkdir()
    (folder / "plotly" / "__init__.py").touch()
    (folder / "plotly" / "io.py").write_text("def show(figure): raise ImportError\n")
    (folder / "plotly" / "graph_objects.py").write_text("def Figure(told): return ('made', told)\n")
    shown: list[Any] = []
    hooks.install(shown.append)
    try:
        import plotly.graph_objects  # type: ignore[import-not-found]
        import plotly.io  # type: ignore[import-not-found]

        plotly.io.show("figure", renderer="x")
        plotly.io.show({"data": []})
    finally:
        for name in ("plotly", "plotly.io", "plotly.graph_objects"):
            sys.modules.pop(name, None)
    assert shown == ["figure", ("made", {"data": []})]
