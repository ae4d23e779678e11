from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.errors import ContainerUnavailableError, DiskQuotaExceededError
from atoll.settings import StorageSettings
from atoll.storage.layers import LayerStore


@pytest.fixture
async def layers(tmp_path: Path) -> AsyncIterator[LayerStore]:
    store = LayerStore(StorageSettings(state_dir=tmp_path, reserve_mb=1), backend="folders")
    await store.open()
    yield store
    await store.close()


async def test_a_layer_is_there_from_create_to_delete(layers: LayerStore) -> None:
    assert layers.kind == "folders"
    await layers.create("one", 1 << 20)
    await layers.create("one", 1 << 20)
    folder = await layers.attach("one")
    assert {path.name for path in folder.iterdir()} == {"upper", "work"}
    assert (await layers.exists("one"), await layers.list()) == (True, ["one"])
    await layers.delete("one")
    await layers.delete("one")
    assert (await layers.exists("one"), await layers.list()) == (False, [])


async def test_usage_is_what_its_files_take(layers: LayerStore) -> None:
    await layers.create("one", 1 << 30)
    before = await layers.usage("one")
    (await layers.attach("one") / "upper" / "file").write_bytes(b"x" * 1_000_000)
    assert 1_000_000 <= await layers.usage("one") - before < 1_200_000


async def test_what_a_killed_engine_left_half_made_or_half_removed_goes(tmp_path: Path) -> None:
    for name in ("layers/.new-a", "layers/.old-b", "layers/.snapshots/.new-c", "layers/d"):
        (tmp_path / name).mkdir(parents=True)
    store = LayerStore(StorageSettings(state_dir=tmp_path, reserve_mb=1), backend="folders")
    await store.open()
    assert await store.list() == ["d"]
    assert {path.name for path in (tmp_path / "layers").iterdir()} == {"d", ".snapshots"}
    await store.close()


async def test_no_layer_is_made_on_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    settings = StorageSettings(state_dir=tmp_path, reserve_mb=1 << 30)
    store = LayerStore(settings, backend="folders")
    await store.open()
    with pytest.raises(ContainerUnavailableError):
        await store.create("one", 1 << 20)
    await store.close()


async def test_a_duplicate_is_a_copy_of_its_own(layers: LayerStore) -> None:
    await layers.create("one", 1 << 30)
    origin = await layers.attach("one") / "upper"
    (origin / "f").write_text("origin")
    for _ in range(2):
        await layers.duplicate("one", "two", 1 << 30)
    copy = await layers.attach("two") / "upper"
    (copy / "f").write_text("copy")
    assert (origin / "f").read_text() == "origin"
    assert sorted(await layers.list()) == ["one", "two"]


async def test_a_limit_that_is_not_enforced_is_refused_when_files_do_not_fit(
    layers: LayerStore,
) -> None:
    await layers.create("one", 1 << 30)
    (await layers.attach("one") / "upper" / "f").write_bytes(b"x" * 2_000_000)
    await layers.resize("one", 1 << 31)
    await layers.settle("one", 1 << 20)
    with pytest.raises(DiskQuotaExceededError):
        await layers.resize("one", 1 << 20)
    assert (await layers.space(), await layers.trim()) == (None, 0)
