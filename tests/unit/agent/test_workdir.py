from pathlib import Path

from atoll.agent.workdir import make_workdir
from atoll.host import trees


def test_it_is_made_with_all_above_it(tmp_path: Path) -> None:
    make_workdir(f"{tmp_path}/a/b/c")
    make_workdir(f"{tmp_path}/a/b/c")
    assert (tmp_path / "a/b/c").is_dir()


def test_what_cannot_be_made_is_left_out(tmp_path: Path) -> None:
    """The agent would not start else: a hostile image says where commands begin."""
    (tmp_path / "file").touch()
    for path in ("file/x", "d/" * 50_000, "a\0b", ""):
        make_workdir(f"{tmp_path}/{path}" if path else path)
    assert (tmp_path / "file").is_file()
    trees.remove(tmp_path / "d")  # deeper than the removal of old temporary folders can go
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_slashes_and_dots_are_no_folders(tmp_path: Path) -> None:
    make_workdir(f"{tmp_path}//x/./y/")
    assert [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.rglob("*"))] == ["x", "x/y"]
