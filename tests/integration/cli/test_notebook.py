"""``atoll notebook run`` with an engine of the fake runtime."""

import json
import uuid
from pathlib import Path
from typing import Any

import nbformat
import pytest

from integration.cli.conftest import Atoll


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    cells = [
        nbformat.v4.new_markdown_cell("# Title"),
        nbformat.v4.new_code_cell("x = 20\nprint('hi')\nx + 1"),
        nbformat.v4.new_code_cell("raise ValueError('no')"),
        nbformat.v4.new_code_cell("x"),
    ]
    path = tmp_path / "n.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def _outputs(path: Path) -> list[Any]:
    cells = nbformat.read(path, as_version=4).cells
    return [[output.output_type for output in cell.outputs] for cell in cells[1:]]


def test_cells_run_until_one_fails_and_outputs_are_written_back(
    command: Atoll, notebook: Path
) -> None:
    done = command("notebook", "run", str(notebook), "--sandbox", f"n-{uuid.uuid4().hex[:8]}")
    assert done.returncode == 1, done.stderr
    assert _outputs(notebook) == [["stream", "execute_result"], ["error"], []]


def test_errors_may_be_allowed_and_another_file_written(
    command: Atoll, notebook: Path, tmp_path: Path
) -> None:
    before, out = notebook.read_bytes(), tmp_path / "out.ipynb"
    done = command(
        "notebook", "run", str(notebook), f"--sandbox=n-{uuid.uuid4().hex[:8]}",
        f"--output={out}", "--allow-errors", "--json",
    )  # fmt: skip
    assert json.loads(done.stdout) == {"run": 3, "failed": 1}
    assert _outputs(out)[2] == ["execute_result"]
    assert notebook.read_bytes() == before


def test_what_is_no_notebook_is_refused(command: Atoll, tmp_path: Path) -> None:
    (tmp_path / "x.ipynb").write_text("{}")
    done = command("notebook", "run", str(tmp_path / "x.ipynb"), "--sandbox=n-none")
    assert done.returncode not in {0, 1}
    assert b"not a notebook" in done.stderr
