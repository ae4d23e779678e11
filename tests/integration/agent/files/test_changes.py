import os
import stat
from pathlib import Path

import msgspec
import pytest

from atoll import errors
from atoll.wire.files import Exists, FileInfo
from integration.agent.files_calls import call


def test_mkdir_makes_one_directory(tmp_path: Path) -> None:
    assert call("mkdir", path=str(tmp_path / "a")).reply == {"success": True}
    assert (tmp_path / "a").is_dir()
    with pytest.raises(errors.FileExistsError):
        call("mkdir", path=str(tmp_path / "a"))
    with pytest.raises(errors.FileNotFoundError):
        call("mkdir", path=str(tmp_path / "b/c"))


def test_recursive_mkdir_makes_parents_and_takes_what_is_there(tmp_path: Path) -> None:
    for _ in range(2):
        call("mkdir", path=str(tmp_path / "a/b/c"), recursive=True, mode=0o2770)
    assert stat.S_IMODE((tmp_path / "a/b/c").stat().st_mode) == 0o2770
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o755


def test_mkdir_over_a_file_is_typed(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(errors.FileExistsError):
        call("mkdir", path=str(tmp_path / "f"), recursive=True)
    with pytest.raises(errors.NotDirectoryError):
        call("mkdir", path=str(tmp_path / "f/x"), recursive=True)


def test_exists_follows_links(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "good").symlink_to("f")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    found = {
        name: msgspec.convert(call("exists", path=str(tmp_path / name)).reply, Exists).exists
        for name in ("f", "good", "dangling", "loop", "f/x", "nope")
    }
    assert found == {
        "f": True, "good": True, "dangling": False, "loop": False, "f/x": False, "nope": False,
    }  # fmt: skip


def test_stat_tells_of_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    info = msgspec.convert(call("stat", path=str(tmp_path / "link")).reply, FileInfo)
    assert (info.type, info.target, info.name) == ("symlink", "nowhere", "link")
    with pytest.raises(errors.FileNotFoundError):
        call("stat", path=str(tmp_path / "nowhere"))


def test_permissions_are_set_through_links(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "link").symlink_to("f")
    reply = call("set_permissions", path=str(tmp_path / "link"), mode=0o640).reply
    assert msgspec.convert(reply, FileInfo).permissions == "rw-r-----"
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


@pytest.mark.skipif(os.getuid() != 0, reason="changes owners")
def test_owners_are_names_or_numbers_and_set_id_bits_survive(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    call("set_permissions", path=str(tmp_path / "f"), owner="daemon", group=4321, mode=0o4755)
    found = (tmp_path / "f").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1, 4321, 0o4755)
    with pytest.raises(errors.ValidationFailedError):
        call("set_permissions", path=str(tmp_path / "f"), owner="no-such-user")


@pytest.mark.parametrize("mode", [-1, 0o10000, "755", True])
def test_modes_are_checked(tmp_path: Path, mode: object) -> None:
    with pytest.raises(errors.ValidationFailedError):
        call("set_permissions", path=str(tmp_path), mode=mode)
