import os
import time

import pytest

from atoll.host.mounts import mount_at, read_mounts
from atoll.settings import StorageSettings
from atoll.storage import btrfs
from atoll.storage.layers import LayerStore

pytestmark = pytest.mark.e2e

MB = 10**6


@pytest.fixture
def backend() -> str:
    return "btrfs"


def group_file(settings: StorageSettings, name: str, layer_id: str) -> int:
    folder = settings.state_dir / "layers"
    entry = mount_at(folder, read_mounts())
    assert entry
    group = btrfs.subvolume_id(folder / layer_id)
    qgroups = btrfs.Sysfs.of_device(entry.source).folder / "qgroups"
    return int((qgroups / f"0_{group}" / name).read_text())


async def test_a_clone_has_a_limit_of_its_own(
    layers: LayerStore, settings: StorageSettings
) -> None:
    await layers.create("a", 64 * MB)
    (await layers.attach("a") / "upper/file").write_bytes(os.urandom(5 * MB))
    await layers.snapshots.take("a", "s1")
    await layers.snapshots.clone("s1", "b", 20 * MB)
    assert group_file(settings, "max_referenced", "b") == 20 * MB
    with pytest.raises(OSError, match="quota"):
        (await layers.attach("b") / "upper/more").write_bytes(os.urandom(30 * MB))


async def test_shared_blocks_count_once_in_the_store(
    layers: LayerStore, settings: StorageSettings
) -> None:
    await layers.create("a", 64 * MB)
    (await layers.attach("a") / "upper/file").write_bytes(os.urandom(20 * MB))
    for number in range(5):
        await layers.snapshots.take("a", f"s{number}")
        await layers.snapshots.clone(f"s{number}", f"b{number}", 64 * MB)
    fd = os.open(settings.state_dir / "layers", os.O_RDONLY)
    btrfs.sync(fd)
    os.close(fd)
    entry = mount_at(settings.state_dir / "layers", read_mounts())
    assert entry
    assert 20 * MB <= btrfs.Sysfs.of_device(entry.source).used(btrfs.STORE_GROUP) < 22 * MB


async def test_time_does_not_depend_on_size(layers: LayerStore) -> None:
    """A copy of 200 MB takes 100 ms and more; a snapshot of what is on the disk a few."""
    await layers.create("a", 400 * MB)
    (await layers.attach("a") / "upper/file").write_bytes(os.urandom(200 * MB))
    await layers.snapshots.take("a", "warm")  # writes the file out
    began = time.perf_counter()
    for number in range(5):
        await layers.snapshots.take("a", f"s{number}")
        await layers.snapshots.clone(f"s{number}", f"b{number}", 400 * MB)
    assert (time.perf_counter() - began) / 5 < 0.1


async def test_groups_of_snapshots_are_not_swept(
    layers: LayerStore, settings: StorageSettings
) -> None:
    await layers.create("a", 64 * MB)
    await layers.snapshots.take("a", "s1")
    before = group_file(settings, "max_referenced", ".snapshots/s1")
    await layers.open()
    assert group_file(settings, "max_referenced", ".snapshots/s1") == before
