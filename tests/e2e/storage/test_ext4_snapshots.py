import subprocess
from pathlib import Path

import pytest

from atoll.settings import StorageSettings
from atoll.storage.layers import LayerStore

pytestmark = pytest.mark.e2e

MB = 10**6


@pytest.fixture
def backend() -> str:
    return "ext4"


async def test_the_copy_of_a_mounted_layer_is_a_whole_file_system(
    layers: LayerStore, settings: StorageSettings
) -> None:
    """Its journal is replayed when it is mounted; the check is of the result."""
    await layers.create("a", 64 * MB)
    upper = await layers.attach("a") / "upper"
    for number in range(200):
        (upper / str(number)).write_text("x" * number)
    await layers.snapshots.take("a", "s1")
    await layers.snapshots.clone("s1", "b", 64 * MB)
    copied = await layers.attach("b") / "upper"
    assert len(list(copied.iterdir())) == 200
    assert (copied / "150").read_text() == "x" * 150
    subprocess.run(["umount", copied.parent], check=True)
    image: Path = settings.state_dir / "layers/b.ext4"
    subprocess.run(["e2fsck", "-f", "-n", image], check=True, capture_output=True)


async def test_an_attached_snapshot_is_unmounted_before_it_is_deleted(
    layers: LayerStore,
) -> None:
    await layers.create("a", 64 * MB)
    await layers.snapshots.take("a", "s1")
    folder = await layers.snapshots.attach("s1")
    assert folder.is_mount()
    await layers.snapshots.delete("s1")
    assert not folder.exists()
