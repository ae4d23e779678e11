import os
from pathlib import Path

import pytest

from atoll.workers.watched import Watched


def watched(root: Path, entry: str = "src", outputs: tuple[int, ...] = ()) -> Watched:
    return Watched(root, root / entry, [root / "image"], outputs)


@pytest.mark.parametrize(
    "name",
    ["lib/a.py", "wrangler.jsonc", ".dev.vars", "Dockerfile", "src/page.html", "image/any/data"],
)
def test_what_a_worker_or_an_image_is_made_of_is_a_reason(tmp_path: Path, name: str) -> None:
    assert watched(tmp_path).matters(tmp_path / name)


@pytest.mark.parametrize(
    "name", ["dev.log", "out.txt", "src/x.log", "notes.md", "src/__pycache__/a.pyc"]
)
def test_what_a_run_leaves_behind_is_none(tmp_path: Path, name: str) -> None:
    assert not watched(tmp_path).matters(tmp_path / name)


def test_an_entry_in_the_root_does_not_make_everything_there_matter(tmp_path: Path) -> None:
    assert not watched(tmp_path, entry=".").matters(tmp_path / "out.txt")
    assert watched(tmp_path, entry=".").matters(tmp_path / "index.py")


def test_the_file_our_own_output_goes_to_never_matters(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    with (tmp_path / "src/page.html").open("w") as file:
        assert not watched(tmp_path, outputs=(file.fileno(),)).matters(tmp_path / "src/page.html")
        os.link(tmp_path / "src/page.html", tmp_path / "src/other.html")
        assert not watched(tmp_path, outputs=(file.fileno(),)).matters(tmp_path / "src/other.html")


def test_only_files_of_a_build_context_can_be_in_an_image(tmp_path: Path) -> None:
    assert watched(tmp_path).in_image(tmp_path / "image/app.py")
    assert not watched(tmp_path).in_image(tmp_path / "src/app.py")
