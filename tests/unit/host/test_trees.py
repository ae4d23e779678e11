"""What is removed is gone, however deep it is, and nothing else is."""

import os
import sys
from pathlib import Path

import pytest

from atoll.host import trees


def deep(top: Path, levels: int) -> Path:
    """Make folders in each other, as deep as no path can name, each with a file."""
    top.mkdir()
    home = os.open(".", os.O_RDONLY)
    try:
        os.chdir(top)
        for _ in range(levels):
            Path("f").touch()
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.fchdir(home)
        os.close(home)
    return top


def test_depth_does_not_matter(tmp_path: Path) -> None:
    """A hostile image has folders nested deeper than Python recurses."""
    top = deep(tmp_path / "top", sys.getrecursionlimit() + 500)
    trees.remove(top)
    assert list(tmp_path.iterdir()) == []


def test_many_side_by_side(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"top/a{number}/b/c").mkdir(parents=True)
        (tmp_path / f"top/a{number}/b/f").touch()
    trees.remove(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


def test_what_links_lead_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (tmp_path / "top/d").mkdir(parents=True)
    for place in ("top/l", "top/d/l", "link"):
        (tmp_path / place).symlink_to(kept)
    trees.remove(tmp_path / "top")
    trees.remove(tmp_path / "link")
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]


def test_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    trees.remove(tmp_path / "none")
    trees.remove(tmp_path / "none/below")


def test_a_file_goes_too(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    trees.remove(tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o000, 0o500, 0o300])
def test_modes_that_stop_the_owner_do_not_matter(tmp_path: Path, mode: int) -> None:
    inner = tmp_path / "top/a/b"
    inner.mkdir(parents=True)
    (inner / "f").touch()
    for folder in (inner, inner.parent):
        folder.chmod(mode)
    trees.remove(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []
