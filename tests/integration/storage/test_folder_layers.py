from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import crashes
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
    for name in (".new-a", ".old-b", ".snapshots/.new-c", ".snapshots/.old-d", "d"):
        (tmp_path / "layers" / name).mkdir(parents=True)
    store = LayerStore(StorageSettings(state_dir=tmp_path, reserve_mb=1), backend="folders")
    await store.open()
    assert await store.list() == ["d"]
    assert {path.name for path in (tmp_path / "layers").iterdir()} == {"d", ".snapshots"}
    assert not list((tmp_path / "layers/.snapshots").iterdir())
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


def _of(tree: crashes.Tree, name: str) -> crashes.Tree:
    """What a cut leaves of one layer or snapshot."""
    return {path: left for path, left in tree.items() if f"{path}/".startswith(f"{name}/")}


async def test_a_power_cut_takes_no_layer_away_that_was_made(
    layers: LayerStore, tmp_path: Path
) -> None:
    made = {"layers/one": None, "layers/one/upper": None, "layers/one/work": None}
    with crashes.watched(tmp_path) as disk:
        await layers.create("one", 1 << 20)
        assert _of(disk.left(), "layers/one") == made
        assert all(_of(cut, "layers/one") in ({}, made) for cut in disk.cuts)


async def test_a_power_cut_leaves_a_duplicate_whole_or_nothing_of_it(
    layers: LayerStore, tmp_path: Path
) -> None:
    await layers.create("one", 1 << 30)
    origin = await layers.attach("one") / "upper"
    (origin / "d").mkdir()
    (origin / "d/f").write_bytes(b"kept")
    (origin / "closed").mkdir(mode=0)
    whole = {
        "": None,
        "/upper": None,
        "/upper/d": None,
        "/upper/d/f": b"kept",
        "/upper/closed": None,
    }
    made = {f"layers/two{path}": left for path, left in whole.items()}
    with crashes.watched(tmp_path) as disk:
        await layers.duplicate("one", "two", 1 << 30)
        assert _of(disk.left(), "layers/two") == made
        assert all(_of(cut, "layers/two") in ({}, made) for cut in disk.cuts)


async def test_a_power_cut_leaves_a_deleted_layer_whole_or_nothing_of_it(
    layers: LayerStore, tmp_path: Path
) -> None:
    await layers.create("one", 1 << 30)
    (await layers.attach("one") / "upper" / "f").write_bytes(b"x")
    with crashes.watched(tmp_path) as disk:
        await layers.delete("one")
        assert not _of(disk.left(), "layers/one")


async def test_a_name_that_an_engine_gave_before_it_was_killed_is_made_durable(
    layers: LayerStore, tmp_path: Path
) -> None:
    """The next one finds the layer and says that it is there: by then it is."""
    with crashes.watched(tmp_path) as disk:
        (tmp_path / "layers/one/upper").mkdir(parents=True)
        await layers.create("one", 1 << 20)
        assert "layers/one" in disk.left()
