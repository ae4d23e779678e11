"""A state directory with its stores; mounts, loop devices and files are gone after the test."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from atoll.host import linux
from atoll.host.mounts import mount_at, mounts_below, read_mounts
from atoll.settings import StorageSettings
from atoll.storage.layers import Backend, LayerStore
from atoll.storage.rootfs import RootfsStore

ID_BASE, ID_COUNT = 0x7000_0000, 65_536


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.geteuid():
        pytest.skip("needs root")
    path = Path(tempfile.mkdtemp(prefix="storage-network-"))
    yield path
    for entry in mounts_below(path, read_mounts()):
        with suppress(OSError):
            linux.umount(entry.target, linux.MNT_DETACH)
    while mount_at(path, read_mounts()):
        linux.umount(path)
    shutil.rmtree(path)


@pytest.fixture
def settings(folder: Path) -> StorageSettings:
    return StorageSettings(state_dir=folder / "state", layer_store_gb=10)


@pytest.fixture(params=["btrfs", "ext4"])
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    return chosen


@pytest.fixture
async def layers(settings: StorageSettings, backend: Backend) -> AsyncIterator[LayerStore]:
    store = LayerStore(settings, backend=backend)
    await store.open()
    yield store
    await store.close(unmount=True)


@pytest.fixture
async def roots(
    folder: Path, settings: StorageSettings, layers: LayerStore
) -> AsyncIterator[RootfsStore]:
    store = RootfsStore(settings, layers, base=folder / "roots")
    await store.open()
    yield store
    for host_ref in await store.list():
        await store.unmount(host_ref)
    await store.close()


@pytest.fixture
def image(folder: Path) -> tuple[Path, Path]:
    """Two layers, the uppermost first, owned by the ids an image has."""
    top, bottom = folder / "image" / "top", folder / "image" / "bottom"
    for path in (top, bottom):
        (path / "etc").mkdir(parents=True)
    (bottom / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (bottom / "etc" / "name").write_text("bottom")
    (top / "etc" / "name").write_text("top")
    (bottom / "home").mkdir()
    os.chown(bottom / "home", 1_000, 1_000)
    folder.chmod(0o755)  # temporary directories are closed; a sandbox's ids must pass
    return top, bottom
