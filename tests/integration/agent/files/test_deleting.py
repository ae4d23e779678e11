import os
from pathlib import Path

import pytest

from atoll import errors
from integration.agent.files_calls import NOBODY, Call, call, shared_directory


def test_a_file_and_a_link_are_deleted_themselves(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "link").symlink_to("f")
    call("delete_file", path=str(tmp_path / "link"))
    assert os.listdir(tmp_path) == ["f"]
    call("delete_file", path=str(tmp_path / "f"))
    assert os.listdir(tmp_path) == []


def test_a_directory_needs_recursive(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(errors.IsDirectoryError) as caught:
        call("delete_file", path=str(tmp_path / "d"))
    assert "recursive" in str(caught.value)
    call("delete_file", path=f"{tmp_path}/d/", recursive=True)
    assert os.listdir(tmp_path) == []


def test_links_in_a_tree_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/f").touch()
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/link").symlink_to(tmp_path / "kept")
    call("delete_file", path=str(tmp_path / "d"), recursive=True)
    assert (tmp_path / "kept/f").exists()


def test_a_link_to_a_directory_is_deleted_as_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to("kept")
    call("delete_file", path=str(tmp_path / "link"), recursive=True)
    assert os.listdir(tmp_path) == ["kept"]


def test_a_very_deep_tree_is_deleted(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    call("delete_file", path=str(tmp_path / "d"), recursive=True)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", ["/", "..", "a/.."])
def test_what_has_no_name_is_not_deleted(tmp_path: Path, path: str) -> None:
    with pytest.raises(errors.ValidationFailedError):
        call("delete_file", path=path, cwd=str(tmp_path), recursive=True)


def test_a_missing_file_is_typed(tmp_path: Path) -> None:
    with pytest.raises(errors.FileNotFoundError):
        call("delete_file", path=str(tmp_path / "nope"), recursive=True)


@pytest.mark.skipif(os.getuid() != 0, reason="changes the user id")
def test_what_can_be_deleted_is_and_the_first_error_is_told() -> None:
    with shared_directory() as top:
        (top / "d").mkdir(mode=0o777)
        (top / "d").chmod(0o777)
        (top / "d/kept").mkdir()
        (top / "d/kept/f").touch()
        (top / "d/gone").touch()
        with pytest.raises(errors.PermissionDeniedError):
            call("delete_file", path=str(top / "d"), recursive=True, uid=NOBODY)
        assert os.listdir(top / "d") == ["kept"]


def test_a_caller_that_goes_stops_the_deletion(tmp_path: Path) -> None:
    for number in range(3000):
        os.mknod(tmp_path / f"{number}")
    running = Call("delete_file", path=str(tmp_path), recursive=True)
    running.finish()
    assert len(os.listdir(tmp_path)) > 1000
