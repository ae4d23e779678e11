import os
from pathlib import Path
from typing import Any

import pytest

from atoll import errors
from integration.agent.files_calls import call


def _search(path: Path, **fields: Any) -> list[str]:
    reply = call("search_files", path=str(path), **fields).reply
    return [os.path.relpath(found, path) for found in reply["paths"]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("src/a.py", "src/deep/b.py", "src/.hidden.py", "c.txt", "src/py/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_names_are_found_at_any_depth_sorted(tree: Path) -> None:
    assert _search(tree, pattern="*.py") == ["src/.hidden.py", "src/a.py", "src/deep/b.py"]
    assert _search(tree, pattern="deep") == ["src/deep"]


def test_a_pattern_with_a_slash_is_about_the_whole_path(tree: Path) -> None:
    assert _search(tree, pattern="src/*.py") == ["src/.hidden.py", "src/a.py"]
    assert _search(tree, pattern="**/b.py") == ["src/deep/b.py"]


def test_a_cut_result_says_so(tree: Path) -> None:
    reply = call("search_files", path=str(tree), pattern="*.py", limit=2).reply
    assert (len(reply["paths"]), reply["truncated"]) == (2, True)
    reply = call("search_files", path=str(tree), pattern="*.py", limit=3).reply
    assert (len(reply["paths"]), reply["truncated"]) == (3, False)


def test_a_bad_pattern_and_a_missing_directory_are_typed(tree: Path) -> None:
    with pytest.raises(errors.ValidationFailedError):
        _search(tree, pattern="[z-a]")
    with pytest.raises(errors.FileNotFoundError):
        _search(tree / "nope")
