import os
from pathlib import Path

import pytest

from atoll.errors import NoSpaceError
from atoll.host import linux
from atoll.host.mounts import mount_at, read_mounts
from atoll.storage.ext4_layers import Ext4Layers

pytestmark = pytest.mark.e2e

MB = 10**6


async def test_a_layer_is_mounted_once_and_only_while_it_is_attached(folder: Path) -> None:
    layers = Ext4Layers(folder / "layers")
    await layers.open()
    await layers.create("a", 32 * MB)
    assert not mount_at(folder / "layers" / "a", read_mounts())
    first = await layers.attach("a")
    before = read_mounts()
    assert await layers.attach("a") == first
    assert read_mounts() == before
    await layers.delete("a")
    assert os.listdir(folder / "layers") == []


async def test_a_layer_that_cannot_be_made_leaves_no_file(folder: Path) -> None:
    linux.mount("none", folder, "tmpfs", data="size=20k")
    layers = Ext4Layers(folder / "layers")
    await layers.open()
    with pytest.raises(NoSpaceError):
        await layers.create("a", 32 * MB)
    assert layers.list() == os.listdir(folder / "layers") == []
