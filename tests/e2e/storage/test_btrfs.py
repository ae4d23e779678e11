import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from atoll.host.mounts import mount_at, read_mounts
from atoll.storage import btrfs
from atoll.storage.btrfs_layers import BtrfsLayers

pytestmark = pytest.mark.e2e

MB = 10**6


@pytest.fixture
async def mounted(folder: Path) -> AsyncIterator[Path]:
    store = BtrfsLayers(folder / "layers", folder / "layers.btrfs", 10**9)
    await store.open()
    yield store.folder
    await store.close(unmount=True)


@pytest.fixture
def fd(mounted: Path) -> Iterator[int]:
    opened = os.open(mounted, os.O_RDONLY)
    yield opened
    os.close(opened)


@pytest.fixture
def sysfs(mounted: Path) -> btrfs.Sysfs:
    entry = mount_at(mounted, read_mounts())
    assert entry
    return btrfs.Sysfs.of_device(entry.source)


def test_a_subvolume_has_its_limit_from_the_start(
    mounted: Path, fd: int, sysfs: btrfs.Sysfs
) -> None:
    """Two steps would leave one without a limit when the engine is killed between them."""
    btrfs.create_subvolume(fd, "one", 30 * MB)
    group = btrfs.subvolume_id(mounted / "one")
    folder = sysfs.folder / "qgroups" / f"0_{group}"
    assert int((folder / "max_referenced").read_text()) == 30 * MB
    assert group in sysfs.subvolume_groups()


def test_all_layers_count_to_the_store(mounted: Path, fd: int, sysfs: btrfs.Sysfs) -> None:
    for name in ("one", "two"):
        btrfs.create_subvolume(fd, name, 30 * MB)
        (mounted / name / "file").write_bytes(os.urandom(5 * MB))
    btrfs.sync(fd)
    assert 10 * MB <= sysfs.used(btrfs.STORE_GROUP) < 11 * MB


def test_a_group_can_be_given_another_limit(mounted: Path, fd: int) -> None:
    btrfs.create_subvolume(fd, "one", MB)
    with pytest.raises(OSError):
        (mounted / "one" / "file").write_bytes(b"x" * 5 * MB)
    btrfs.limit_group(fd, btrfs.subvolume_id(mounted / "one"), 30 * MB)
    (mounted / "one" / "file").write_bytes(b"x" * 5 * MB)


def test_only_the_top_of_a_subvolume_is_one(mounted: Path, fd: int) -> None:
    btrfs.create_subvolume(fd, "one", MB)
    (mounted / "one" / "folder").mkdir()
    assert btrfs.is_subvolume(mounted / "one")
    assert not btrfs.is_subvolume(mounted / "one" / "folder")
    assert not btrfs.is_subvolume(mounted / "missing")
    btrfs.delete_subvolume(fd, "one")
    assert not btrfs.is_subvolume(mounted / "one")


def test_quotas_may_be_enabled_again(fd: int, sysfs: btrfs.Sysfs) -> None:
    btrfs.enable_quota(fd)
    assert sysfs.quota_enabled()


def test_a_device_without_a_btrfs_is_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        btrfs.Sysfs.of_device("/dev/null")
