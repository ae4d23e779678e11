import os
from pathlib import Path

import pytest

from atoll.errors import FilesystemError
from atoll.host import own_root
from atoll.storage.folder_layers import FolderLayers


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What root inside may leave: closed folders, whiteouts, links, attributes, holes."""
    top = tmp_path / "tree"
    (top / "closed" / "inner").mkdir(parents=True)
    (top / "closed" / "inner" / "file").write_bytes(b"x" * 10_000)
    (top / "secret").write_text("s")
    os.link(top / "secret", top / "hard")
    (top / "link").symlink_to("/nowhere")
    os.mknod(top / "gone", 0o020000, os.makedev(0, 0))
    os.setxattr(top, "user.overlay.opaque", b"y")
    for path in (top / "secret", top / "closed" / "inner", top / "closed"):
        path.chmod(0)
    return top


async def test_a_copy_has_all_that_overlay_keeps(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    await own_root.copy(tree, copy)
    assert os.getxattr(copy, "user.overlay.opaque") == b"y"
    assert os.lstat(copy / "gone").st_rdev == 0
    assert os.lstat(copy / "closed").st_mode & 0o777 == 0
    assert os.lstat(copy / "secret").st_ino == os.lstat(copy / "hard").st_ino
    assert (copy / "link").readlink() == Path("/nowhere")


async def test_what_nobody_may_enter_is_measured_and_removed(tree: Path) -> None:
    assert await own_root.usage(tree) > 10_000
    await own_root.remove(tree)
    assert not own_root.is_there(tree)
    await own_root.remove(tree)


async def test_a_failure_is_typed(tmp_path: Path) -> None:
    with pytest.raises(FilesystemError):
        await own_root.copy(tmp_path / "missing", tmp_path / "copy")


async def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    await own_root.remove(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert FolderLayers(tmp_path).list() == ["kept"]
