import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from atoll.errors import FileNotFoundError, NotSupportedByRuntimeError, ResourceBusyError
from atoll.host import linux
from atoll.host.mounts import mounts_below, read_mounts
from atoll.settings import StorageSettings
from atoll.storage.layers import Backend, LayerStore
from atoll.storage.rootfs import RootfsStore
from e2e.storage.conftest import ID_BASE, ID_COUNT
from e2e.storage.inside import as_id

pytestmark = pytest.mark.e2e

MB = 10**6
SIZE = 64 * MB
Image = tuple[Path, Path]


@pytest.fixture
async def root(layers: LayerStore, roots: RootfsStore, image: Image) -> Path:
    await layers.create("layer", SIZE)
    return await roots.mount("ref", image, "layer", ID_BASE, ID_COUNT)


async def test_the_image_appears_with_the_sandboxes_ids(root: Path) -> None:
    assert (root / "etc" / "name").read_text() == "top"
    assert (root / "etc" / "passwd").stat().st_uid == ID_BASE
    assert (root / "home").stat().st_uid == ID_BASE + 1_000
    assert root.stat().st_uid == ID_BASE
    assert root.stat().st_mode & 0o777 == 0o755


async def test_files_lie_on_disk_with_the_images_own_ids(root: Path, layers: LayerStore) -> None:
    def write() -> None:
        (root / "etc" / "passwd").write_text("changed")
        (root / "new").write_text("new")

    as_id(ID_BASE, write)
    upper = await layers.attach("layer") / "upper"
    assert [(upper / n).stat().st_uid for n in ("new", "etc/passwd", "etc")] == [0, 0, 0]
    assert (root / "new").stat().st_uid == ID_BASE


async def test_the_image_is_never_changed(root: Path, image: Image) -> None:
    def attack() -> None:
        (root / "etc" / "passwd").unlink()
        (root / "etc" / "name").write_text("changed")

    as_id(ID_BASE, attack)
    assert (image[1] / "etc" / "passwd").exists()
    assert (image[0] / "etc" / "name").read_text() == "top"


async def test_a_directory_of_the_image_can_be_renamed(root: Path) -> None:
    as_id(ID_BASE, lambda: os.rename(root / "home", root / "moved"))
    assert (root / "moved").stat().st_uid == ID_BASE + 1_000


async def test_the_limit_holds_through_the_root(root: Path) -> None:
    assert SIZE // 2 < as_id(ID_BASE, lambda: fill(root)) <= SIZE


def fill(root: Path) -> int:
    with (root / "big").open("wb", buffering=0) as file:
        written = 0
        try:
            while written < 2 * SIZE:
                written += file.write(b"x" * MB)
        except OSError:
            os.fsync(file.fileno())
    return written


def fill_with_folders(root: Path) -> None:
    """Take the space that small things need, too."""
    with suppress(OSError):
        for number in range(20_000):
            (root / f"d{number}").mkdir()


async def test_a_full_layer_can_be_freed_after_it_was_mounted_again(
    layers: LayerStore, roots: RootfsStore, root: Path, image: Image
) -> None:
    """Overlay mounts read-only where it can make nothing: nobody could delete anything any more."""

    def full() -> None:
        fill(root)
        fill_with_folders(root)

    as_id(ID_BASE, full)
    await roots.unmount("ref")
    await layers.create("layer", SIZE)
    again = await roots.mount("next", image, "layer", ID_BASE, ID_COUNT)
    assert not os.statvfs(again).f_flag & os.ST_RDONLY
    with pytest.raises(OSError, match=r"quota|space"):
        as_id(ID_BASE, lambda: (again / "more").write_bytes(os.urandom(20 * MB)))
    as_id(ID_BASE, (again / "big").unlink)
    assert as_id(ID_BASE, lambda: (again / "file").write_text("freed")) == 5


async def test_what_one_sandbox_writes_is_in_no_other(
    layers: LayerStore, roots: RootfsStore, root: Path, image: Image
) -> None:
    await layers.create("other", SIZE)
    second = await roots.mount("two", image, "other", ID_BASE + ID_COUNT, ID_COUNT)
    as_id(ID_BASE, lambda: (root / "marker").write_text("mine"))
    assert not (second / "marker").exists()
    for uid in (ID_BASE, 65_534):
        with pytest.raises(PermissionError):
            as_id(uid, lambda: (second / "marker").write_text("x"))
        with pytest.raises(PermissionError):
            as_id(uid, lambda: os.listdir(second))


async def test_nothing_in_a_root_is_setuid_or_a_device(root: Path) -> None:
    flags = os.statvfs(root).f_flag
    assert flags & os.ST_NOSUID
    assert flags & os.ST_NODEV


async def test_files_survive_another_range_of_ids(
    layers: LayerStore, roots: RootfsStore, root: Path, image: Image
) -> None:
    as_id(ID_BASE, lambda: (root / "kept").write_text("kept"))
    await roots.unmount("ref")
    again = await roots.mount("next", image, "layer", ID_BASE + 5 * ID_COUNT, ID_COUNT)
    assert (again / "kept").stat().st_uid == ID_BASE + 5 * ID_COUNT
    assert as_id(ID_BASE + 5 * ID_COUNT, (again / "kept").read_text) == "kept"


async def test_mounting_again_is_the_same_root(
    roots: RootfsStore, root: Path, image: Image
) -> None:
    before = read_mounts()
    assert await roots.mount("ref", image, "layer", ID_BASE, ID_COUNT) == root
    assert read_mounts() == before


async def test_a_layer_is_never_mounted_twice(roots: RootfsStore, root: Path, image: Image) -> None:
    """Two overlays over one upper layer would corrupt it."""
    with pytest.raises(ResourceBusyError):
        await roots.mount("two", image, "layer", ID_BASE + ID_COUNT, ID_COUNT)
    assert await roots.list() == ["ref"]


async def test_unmounting_twice_leaves_nothing(
    roots: RootfsStore, root: Path, folder: Path
) -> None:
    await roots.unmount("ref")
    await roots.unmount("ref")
    assert await roots.list() == []
    assert not root.exists()
    assert not root.parent.exists()
    assert not mounts_below(folder / "roots", read_mounts())


async def test_a_root_somebody_still_uses_is_removed_all_the_same(
    roots: RootfsStore, root: Path
) -> None:
    with (root / "etc" / "name").open() as held:
        await roots.unmount("ref")
        assert await roots.list() == []
        assert held.read() == "top"


async def test_a_layer_that_is_missing_leaves_nothing(
    roots: RootfsStore, image: Image, folder: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        await roots.mount("ref", image, "nobody", ID_BASE, ID_COUNT)
    assert await roots.list() == []


async def test_an_image_layer_that_is_missing_leaves_nothing(
    layers: LayerStore, roots: RootfsStore, image: Image, folder: Path
) -> None:
    await layers.create("layer", SIZE)
    with pytest.raises(FileNotFoundError):
        await roots.mount("ref", [*image, folder / "gone"], "layer", ID_BASE, ID_COUNT)
    assert await roots.list() == []
    assert os.listdir(next((folder / "roots").iterdir())) == []


async def test_a_file_system_without_idmapping_is_a_typed_error(
    layers: LayerStore, roots: RootfsStore
) -> None:
    await layers.create("layer", SIZE)
    with pytest.raises(NotSupportedByRuntimeError) as caught:
        await roots.mount("ref", [Path("/proc/tty")], "layer", ID_BASE, ID_COUNT)
    assert caught.value.suggestion
    assert await roots.list() == []


async def test_an_image_may_have_a_hundred_layers(
    layers: LayerStore, roots: RootfsStore, folder: Path
) -> None:
    many = [folder / "image" / str(n) for n in range(100)]
    for number, path in enumerate(many):
        path.mkdir(parents=True)
        (path / f"file{number}").touch()
        (path / "depth").write_text(str(number))
    await layers.create("layer", SIZE)
    root = await roots.mount("ref", [*many, many[3]], "layer", ID_BASE, ID_COUNT)
    assert len(os.listdir(root)) == 101
    assert (root / "depth").read_text() == "0"


@pytest.mark.parametrize("delay", [0, 0.001, 0.003])
async def test_a_mount_whose_caller_was_cancelled_leaves_nothing(
    layers: LayerStore, roots: RootfsStore, image: Image, folder: Path, delay: float
) -> None:
    await layers.create("layer", SIZE)
    mounting = asyncio.create_task(roots.mount("ref", image, "layer", ID_BASE, ID_COUNT))
    await asyncio.sleep(delay)
    mounting.cancel()
    with suppress(asyncio.CancelledError):
        await mounting
        await roots.unmount("ref")
    assert not mounts_below(folder / "roots", read_mounts())
    await roots.mount("ref", image, "layer", ID_BASE, ID_COUNT)


CRASH = """
import asyncio, os, signal, sys
from pathlib import Path
from atoll.host import linux
from atoll.settings import StorageSettings
from atoll.storage.layers import LayerStore
from atoll.storage.rootfs import RootfsStore

folder, at = Path(sys.argv[1]), int(sys.argv[2])
calls = 0

def dying(real):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call

async def main():
    settings = StorageSettings(state_dir=folder / "state", layer_store_gb=10)
    layers = LayerStore(settings, backend="btrfs")
    await layers.open()
    roots = RootfsStore(settings, layers, base=folder / "roots")
    await roots.open()
    for name in ("open_tree", "mount_setattr", "move_mount", "mount", "umount"):
        setattr(linux, name, dying(getattr(linux, name)))
    lowers = [folder / "image" / "top", folder / "image" / "bottom"]
    await roots.mount("ref", lowers, "layer", 0x70000000, 65536)
    await roots.unmount("ref")
    print("done")

asyncio.run(main())
"""


@pytest.mark.parametrize("backend", ["btrfs"], indirect=True)
@pytest.mark.parametrize("at", range(1, 14))
async def test_an_engine_killed_at_any_step_leaves_what_the_next_one_removes(
    layers: LayerStore, roots: RootfsStore, image: Image, folder: Path, backend: Backend, at: int
) -> None:
    await layers.create("layer", SIZE)
    argv = [sys.executable, "-c", CRASH, str(folder), str(at)]
    child = subprocess.run(argv, capture_output=True, text=True)
    assert child.returncode == -9, child.stderr

    again = RootfsStore(roots_settings(folder), layers, base=folder / "roots")
    await again.open()
    for host_ref in await again.list():
        assert host_ref == "ref"
        await again.unmount(host_ref)
    assert await again.list() == []
    root = await again.mount("ref", image, "layer", ID_BASE, ID_COUNT)
    as_id(ID_BASE, lambda: (root / "new").write_text("new"))
    await again.unmount("ref")
    await layers.delete("layer")
    assert not mounts_below(folder / "roots", read_mounts())


def roots_settings(folder: Path) -> StorageSettings:
    return StorageSettings(state_dir=folder / "state", layer_store_gb=10)


async def test_a_new_engine_learns_what_running_sandboxes_use(
    roots: RootfsStore, root: Path, layers: LayerStore, folder: Path
) -> None:
    again = RootfsStore(roots_settings(folder), layers, base=folder / "roots")
    await again.open()
    label = (await again.labels())["ref"]
    assert (label.layer_id, label.id_base, label.id_count) == ("layer", ID_BASE, ID_COUNT)


async def test_a_root_is_seen_in_no_other_mount_namespace(
    folder: Path, settings: StorageSettings, layers: LayerStore, image: Image
) -> None:
    shared, peer = folder / "shared", folder / "peer"
    shared.mkdir()
    peer.mkdir()
    linux.mount(shared, shared, flags=linux.MS_BIND)
    linux.mount("", shared, flags=1 << 20)  # MS_SHARED
    linux.mount(shared, peer, flags=linux.MS_BIND)
    roots = RootfsStore(settings, layers, base=shared / "roots")
    await roots.open()
    await layers.create("layer", SIZE)
    root = await roots.mount("ref", image, "layer", ID_BASE, ID_COUNT)
    overlays = [m.target for m in read_mounts() if m.fstype == "overlay"]
    assert root in overlays
    assert not [t for t in overlays if peer in t.parents]
    await roots.unmount("ref")
    await roots.close()
