import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import errors
from integration.agent.files_calls import call


def _move(source: object, target: object, op: str = "move_file") -> None:
    call(op, source=str(source), target=str(target))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        if os.stat(name).st_dev == tmp_path.stat().st_dev:
            pytest.skip("no second file system")
        yield Path(name)


@pytest.mark.parametrize("op", ["rename_file", "move_file"])
def test_a_file_gets_its_new_name_and_replaces_what_was_there(tmp_path: Path, op: str) -> None:
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old")
    _move(tmp_path / "a", tmp_path / "b", op)
    assert os.listdir(tmp_path) == ["b"]
    assert (tmp_path / "b").read_bytes() == b"new"


def test_a_link_is_moved_itself(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    _move(tmp_path / "link", tmp_path / "other")
    assert os.readlink(tmp_path / "other") == "nowhere"


@pytest.mark.parametrize("op", ["rename_file", "move_file"])
def test_trees_move_between_file_systems(tmp_path: Path, elsewhere: Path, op: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "f").write_bytes(b"content")
    if os.getuid() == 0:
        os.chown(tree / "f", 1234, 4321)
    (tree / "f").chmod(0o4755)
    (tree / "link").symlink_to("f")
    _move(tree, elsewhere / "moved", op)
    assert os.listdir(tmp_path) == []
    assert os.listdir(elsewhere) == ["moved"]
    moved = (elsewhere / "moved/f").stat()
    assert stat.S_IMODE(moved.st_mode) == 0o4755
    if os.getuid() == 0:
        assert (moved.st_uid, moved.st_gid) == (1234, 4321)
    assert os.readlink(elsewhere / "moved/link") == "f"


def test_a_move_between_file_systems_that_fails_leaves_both_sides(
    tmp_path: Path, elsewhere: Path
) -> None:
    (tmp_path / "tree/sub").mkdir(parents=True)
    (elsewhere / "taken/full").mkdir(parents=True)
    with pytest.raises(errors.FileExistsError) as caught:
        _move(tmp_path / "tree", elsewhere / "taken")
    assert caught.value.context["path"] == str(elsewhere / "taken")
    assert (tmp_path / "tree/sub").is_dir()
    assert os.listdir(elsewhere) == ["taken"]


def test_a_directory_is_no_target_to_move_into(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "d").mkdir()
    with pytest.raises(errors.IsDirectoryError) as caught:
        _move(tmp_path / "f", tmp_path / "d")
    assert "new name" in str(caught.value)


def test_errors_name_the_path_they_are_about(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(errors.FileNotFoundError) as caught:
        _move(tmp_path / "nope", tmp_path / "x")
    assert caught.value.context["path"] == str(tmp_path / "nope")
    with pytest.raises(errors.FileNotFoundError) as caught:
        _move(tmp_path / "f", tmp_path / "nope/x")
    assert caught.value.context["path"] == str(tmp_path / "nope/x")


def test_a_directory_is_not_moved_into_itself(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(errors.FilesystemError) as caught:
        _move(tmp_path / "d", tmp_path / "d/e")
    assert "into itself" in str(caught.value)
