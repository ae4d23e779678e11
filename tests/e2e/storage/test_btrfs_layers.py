import errno
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.errors import FilesystemError, NoSpaceError
from atoll.host import linux
from atoll.host.mounts import mount_at, read_mounts
from atoll.storage.btrfs_layers import BtrfsLayers
from atoll.storage.btrfs_snapshots import BtrfsSnapshots

pytestmark = pytest.mark.e2e

MB = 10**6
GB = 10**9


@pytest.fixture
async def small_disk(folder: Path) -> Path:
    """A disk of 400 MB, so that a test can fill it."""
    disk = folder / "disk"
    disk.mkdir()
    linux.mount("tmpfs", disk, "tmpfs", data="size=400m,mode=755")
    return disk


@pytest.fixture
async def store(small_disk: Path) -> AsyncIterator[BtrfsLayers]:
    opened = BtrfsLayers(small_disk / "layers", small_disk / "layers.btrfs", 10 * GB)
    await opened.open()
    yield opened
    await opened.close(unmount=True)


async def test_layers_together_leave_the_hosts_reserve_alone(
    store: BtrfsLayers, small_disk: Path
) -> None:
    """A loop file that cannot grow would be I/O errors in every sandbox at once."""
    reserve = 100 * MB
    store.refresh_limit(reserve)
    for name in "ab":
        await store.create(name, GB)
    _append(await store.attach("a") / "upper" / "big", 120 * MB)
    _append(await store.attach("b") / "upper" / "big", 120 * MB)
    with pytest.raises(OSError) as caught:
        _append(await store.attach("a") / "upper" / "big", 120 * MB)
    assert caught.value.errno == errno.EDQUOT
    store.refresh_limit(reserve)
    left = os.statvfs(small_disk)
    assert left.f_bavail * left.f_frsize > reserve // 2
    (await store.attach("a") / "upper" / "big").unlink()
    os.sync()
    store.refresh_limit(reserve)
    _append(await store.attach("b") / "upper" / "more", 10 * MB)


async def test_the_store_grows_with_its_setting(store: BtrfsLayers, small_disk: Path) -> None:
    await store.create("a", MB)
    await store.close(unmount=True)
    grown = BtrfsLayers(store.folder, store.image, 20 * GB)
    await grown.open()
    size = os.statvfs(grown.folder)
    assert size.f_blocks * size.f_frsize == pytest.approx(20 * GB, rel=0.01)
    assert grown.list() == ["a"]


async def test_a_store_that_cannot_be_made_leaves_no_file(folder: Path) -> None:
    disk = folder / "tiny"
    disk.mkdir()
    linux.mount("tmpfs", disk, "tmpfs", data="size=100k")
    store = BtrfsLayers(disk / "layers", disk / "layers.btrfs", 10 * GB)
    with pytest.raises(NoSpaceError) as caught:
        await store.open()
    assert caught.value.suggestion
    assert os.listdir(disk) == []


async def test_a_store_that_the_kernel_gave_up_is_said_to_be_read_only(store: BtrfsLayers) -> None:
    linux.mount("", store.folder, flags=linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY)
    again = BtrfsLayers(store.folder, store.image, store.size)
    with pytest.raises(FilesystemError, match="read-only"):
        await again.open()
    linux.mount("", store.folder, flags=linux.MS_REMOUNT | linux.MS_BIND)


async def test_a_store_that_is_opened_again_has_the_numbers_of_no_other_of_the_host(
    store: BtrfsLayers, small_disk: Path
) -> None:
    """While it is not mounted, another btrfs is the one that the kernel shows."""
    other = BtrfsLayers(small_disk / "other", small_disk / "other.btrfs", 10 * GB)
    await other.open()
    await store.create("a", GB)
    _append(await store.attach("a") / "upper" / "big", 30 * MB)
    os.sync()
    used = store.used(store.folder / "a")
    await store.close(unmount=True)
    fresh = BtrfsLayers(store.folder, store.image, store.size)
    for ask in (lambda: fresh.refresh_limit(MB), fresh.space, lambda: fresh.limit("a")):
        with pytest.raises(FilesystemError, match="not mounted"):
            ask()
    await fresh.open()
    fresh.refresh_limit(MB)
    assert fresh.used(fresh.folder / "a") == used
    assert fresh.limit("a") == GB
    await other.close(unmount=True)


async def test_a_shared_file_system_shows_the_mount_to_no_other_namespace(folder: Path) -> None:
    """systemd makes everything shared; a copy elsewhere would keep the store busy for ever."""
    linux.mount(folder, folder, flags=linux.MS_BIND)
    linux.mount("", folder, flags=_MS_SHARED)
    peer = folder / "peer"
    peer.mkdir()
    linux.mount(folder, peer, flags=linux.MS_BIND)
    store = BtrfsLayers(folder / "layers", folder / "layers.btrfs", GB)
    await store.open()
    try:
        assert mount_at(folder / "layers", read_mounts())
        assert not mount_at(folder / "layers", read_mounts()).shared  # type: ignore[union-attr]
        btrfs = [m.target for m in read_mounts() if m.fstype == "btrfs"]
        assert peer / "layers" not in btrfs
    finally:
        await store.close(unmount=True)
        linux.umount(peer, linux.MNT_DETACH)


async def test_a_directory_on_a_btrfs_with_quotas_is_used_as_it_is(store: BtrfsLayers) -> None:
    await store.create("host", GB)
    folder = store.folder / "host" / "layers"
    direct = BtrfsLayers(folder, None, 0)
    await direct.open()
    await direct.create("a", 8 * MB)
    with pytest.raises(OSError):
        _append(folder / "a" / "upper" / "big", 20 * MB)
    assert direct.list() == ["a"]
    assert os.statvfs(folder).f_flag & os.ST_NOSUID
    await direct.delete("a")
    await direct.close(unmount=True)


_MS_SHARED = 1 << 20


def _append(path: Path, size: int) -> None:
    with path.open("ab") as file:
        for _ in range(size // MB):
            file.write(os.urandom(MB))
        file.flush()
        os.fsync(file.fileno())


async def test_what_a_caller_is_told_of_is_there_after_a_power_cut(
    store: BtrfsLayers, small_disk: Path
) -> None:
    """The kernel writes names 30 s later by itself, while records are durable at once."""
    snapshots = BtrfsSnapshots(store)
    snapshots.sweep()
    os.sync()
    await store.create("made", MB)
    assert "made" in _on_disk(small_disk)
    await snapshots.take("made", "taken")
    assert "taken" in _on_disk(small_disk)
    await snapshots.clone("taken", "cloned", MB)
    assert "cloned" in _on_disk(small_disk)
    await store.duplicate("made", "doubled", MB)
    assert "doubled" in _on_disk(small_disk)


def _on_disk(disk: Path) -> set[str]:
    """Return the names that the file of the store has: what the kernel has yet to write is not in it."""
    copy = disk / "copy"
    subprocess.run(["cp", "--sparse=always", disk / "layers.btrfs", copy], check=True)
    tree = subprocess.run(
        ["btrfs", "inspect-internal", "dump-tree", "-t", "5", copy],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(re.findall(r"name: (\S+)", tree.stdout))
