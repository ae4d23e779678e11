import os
from pathlib import Path

import pytest

from atoll.errors import FilesystemError
from atoll.storage import diff
from atoll.storage.layers import LayerStore
from atoll.storage.rootfs import RootfsStore
from e2e.storage.conftest import ID_BASE, ID_COUNT

pytestmark = pytest.mark.e2e

SIZE = 64 * 10**6


class Root:
    """A mounted root, and what changed in it since a snapshot."""

    def __init__(self, layers: LayerStore, path: Path, lowers: list[Path]) -> None:
        self.layers, self.path, self.lowers = layers, path, lowers

    async def since(self, before: str = "before") -> list[diff.Change]:
        await self.layers.snapshots.delete("now")
        await self.layers.snapshots.take("a", "now")
        old, new = [await self.layers.snapshots.attach(name) for name in (before, "now")]
        return list(diff.changes(old / "upper", new / "upper", self.lowers))


@pytest.fixture
async def root(layers: LayerStore, roots: RootfsStore, folder: Path) -> Root:
    top, bottom = folder / "top", folder / "bottom"
    for path, text in (
        (bottom / "etc/passwd", "root"),
        (bottom / "usr/lib/a.so", "a"),
        (bottom / "usr/lib/b.so", "b"),
        (top / "etc/group", "wheel"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    await layers.create("a", SIZE)
    path = await roots.mount("one", [top, bottom], "a", ID_BASE, ID_COUNT)
    (path / "work").mkdir()
    (path / "work/kept").write_text("kept")
    (path / "work/edited").write_text("old")
    (path / "work/doomed").mkdir()
    (path / "work/doomed/file").touch()
    await layers.snapshots.take("a", "before")
    return Root(layers, path, [top, bottom])


async def test_nothing_differs_when_nothing_was_done(root: Root) -> None:
    (root.path / "etc/passwd").read_text()
    assert await root.since() == []


async def test_what_was_made_edited_and_deleted_is_told_in_order(root: Root) -> None:
    (root.path / "work/edited").write_text("longer")
    (root.path / "work/doomed/file").unlink()
    (root.path / "work/doomed").rmdir()
    (root.path / "work/new").mkdir()
    (root.path / "work/new/link").symlink_to("/etc/passwd")
    assert await root.since() == [
        ("/work/doomed", "deleted", "directory", 0),
        ("/work/edited", "modified", "file", 6),
        ("/work/new", "created", "directory", 0),
        ("/work/new/link", "created", "symlink", 0),
    ]


async def test_an_edit_that_keeps_size_and_time_is_seen(root: Root) -> None:
    file = root.path / "work/kept"
    before = file.stat()
    file.write_text("KEPT")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert await root.since() == [("/work/kept", "modified", "file", 4)]


async def test_changes_of_the_image_are_told_as_such(root: Root) -> None:
    (root.path / "etc/passwd").write_text("changed")
    (root.path / "etc/group").unlink()
    (root.path / "etc/new").touch()
    assert await root.since() == [
        ("/etc/group", "deleted", "file", 0),
        ("/etc/new", "created", "file", 0),
        ("/etc/passwd", "modified", "file", 7),
    ]


async def test_what_came_back_after_the_snapshot_is_told(root: Root) -> None:
    (root.path / "etc/group").unlink()
    await root.layers.snapshots.take("a", "later")
    (root.path / "etc/group").write_text("again")
    assert await root.since("later") == [("/etc/group", "created", "file", 5)]


async def test_a_folder_of_the_image_that_was_made_anew_has_lost_what_was_in_it(
    root: Root,
) -> None:
    for name in ("a.so", "b.so"):
        (root.path / "usr/lib" / name).unlink()
    (root.path / "usr/lib").rmdir()
    (root.path / "usr/lib").mkdir()
    os.chown(root.path / "usr/lib", ID_BASE, ID_BASE)
    (root.path / "usr/lib/a.so").write_text("mine")
    assert await root.since() == [
        ("/usr/lib/a.so", "modified", "file", 4),
        ("/usr/lib/b.so", "deleted", "file", 0),
    ]


async def test_a_link_in_one_state_is_never_followed_for_a_folder_in_the_other(
    root: Root, folder: Path
) -> None:
    """The sandbox chooses where its links lead: to what is on the host."""
    secret = folder / "secret"
    secret.mkdir()
    (secret / "name").touch()
    (root.path / "work/x").symlink_to(secret)
    await root.layers.snapshots.take("a", "linked")
    (root.path / "work/x").unlink()
    (root.path / "work/x").mkdir()
    (root.path / "work/x/mine").touch()
    assert await root.since("linked") == [
        ("/work/x", "modified", "directory", 0),
        ("/work/x/mine", "created", "file", 0),
    ]


async def test_a_tree_that_is_too_deep_is_an_error(root: Root) -> None:
    at = os.open(root.path / "work", os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=at)
        deeper = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)
    with pytest.raises(FilesystemError, match="deep"):
        await root.since()


async def test_names_that_are_no_text_are_told_apart(root: Root) -> None:
    for name in (b"\xff", b"\xfe"):
        (root.path / "work" / os.fsdecode(name)).touch()
    assert len({change[0] for change in await root.since()}) == 2


async def test_names_that_are_too_long_for_one_path_are_an_error(root: Root) -> None:
    """Code inside makes them step by step; no path on the host can name what is at the end."""
    at = os.open(root.path / "work", os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=at)
        deeper = os.open("d" * 250, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)
    with pytest.raises(FilesystemError, match="too long") as caught:
        await root.since()
    assert "ddd" not in str(caught.value)


@pytest.mark.parametrize("limit", ["MAX_IN_FOLDER", "MAX_ENTRIES"])
async def test_a_tree_that_holds_too_much_is_an_error(
    root: Root, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Or code inside would choose how much memory and time the engine takes."""
    for name in range(10):
        (root.path / f"work/{name}").touch()
    assert len(await root.since()) == 10
    monkeypatch.setattr(diff, limit, 9)
    with pytest.raises(FilesystemError, match="more than 9 entries"):
        await root.since()
