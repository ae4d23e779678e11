from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.errors import FileNotFoundError
from atoll.host import overlay
from atoll.settings import StorageSettings
from atoll.storage.folder_roots import FolderRoots
from atoll.storage.layers import LayerStore

LOWERS = [Path("/top"), Path("/bottom"), Path("/top")]


@pytest.fixture
async def layers(tmp_path: Path) -> AsyncIterator[LayerStore]:
    store = LayerStore(StorageSettings(state_dir=tmp_path, reserve_mb=1), backend="folders")
    await store.open()
    yield store
    await store.close()


async def test_a_root_is_described_until_it_is_unmounted(
    tmp_path: Path, layers: LayerStore
) -> None:
    await layers.create("one", 1 << 20)
    roots = FolderRoots(tmp_path / "run", layers)
    root = await roots.mount("e-1", LOWERS, "one", 0, 1)
    layer = tmp_path / "layers/one"
    expected = overlay.Description(("/top", "/bottom"), str(layer / "upper"), str(layer / "work"))
    assert overlay.read(root) == expected
    assert await roots.list() == ["e-1"]
    await roots.unmount("e-1")
    await roots.unmount("e-1")
    assert await roots.list() == []
    assert list((tmp_path / "run/e-1").iterdir()) == []


async def test_a_volume_appears_once_at_its_target(tmp_path: Path, layers: LayerStore) -> None:
    for name in ("one", "volume"):
        await layers.create(name, 1 << 20)
    roots = FolderRoots(tmp_path / "run", layers)
    root = await roots.mount("e-1", LOWERS, "one", 0, 1)
    for read_only in (False, True):
        await roots.attach("e-1", "/data", "volume", read_only=read_only)
    source = str(tmp_path / "layers/volume/upper")
    assert overlay.read(root).attached == (overlay.Attached(source, "/data", True),)


async def test_a_layer_that_is_missing_is_told(tmp_path: Path, layers: LayerStore) -> None:
    """An empty one would hide that files are lost."""
    roots = FolderRoots(tmp_path / "run", layers)
    with pytest.raises(FileNotFoundError):
        await roots.mount("e-1", LOWERS, "one", 0, 1)
