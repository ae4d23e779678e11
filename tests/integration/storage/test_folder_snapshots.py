import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import crashes
from atoll.errors import FileNotFoundError
from atoll.host import durable, overlay
from atoll.settings import StorageSettings
from atoll.storage.layers import LayerStore


@pytest.fixture
async def layers(tmp_path: Path) -> AsyncIterator[LayerStore]:
    store = LayerStore(StorageSettings(state_dir=tmp_path, reserve_mb=1), backend="folders")
    await store.open()
    yield store
    await store.close()


async def test_a_snapshot_does_not_change_with_its_layer(layers: LayerStore) -> None:
    await layers.create("one", 1 << 20)
    file = await layers.attach("one") / "upper" / "file"
    file.write_text("then")
    await layers.snapshots.take("one", "s")
    await layers.snapshots.take("one", "s")
    file.write_text("now")
    kept = await layers.snapshots.attach("s") / "upper" / "file"
    assert kept.read_text() == "then"
    assert await layers.snapshots.list() == ["s"]
    assert await layers.snapshots.usage("s") > 0


async def test_a_clone_begins_as_the_snapshot_and_goes_its_own_way(layers: LayerStore) -> None:
    await layers.create("one", 1 << 20)
    upper = await layers.attach("one") / "upper"
    (upper / "file").write_text("then")
    os.mknod(upper / "gone", 0o020000, os.makedev(0, 0))
    await layers.snapshots.take("one", "s")
    await layers.snapshots.clone("s", "two", 1 << 20)
    clone = await layers.attach("two") / "upper"
    (clone / "file").write_text("other")
    assert (await layers.snapshots.attach("s") / "upper" / "file").read_text() == "then"
    assert os.lstat(clone / "gone").st_rdev == 0
    assert (clone.parent / "work").is_dir()


async def test_a_snapshot_that_is_deleted_leaves_its_clones(layers: LayerStore) -> None:
    await layers.create("one", 1 << 20)
    (await layers.attach("one") / "upper" / "closed").mkdir(mode=0)
    await layers.snapshots.take("one", "s")
    await layers.snapshots.clone("s", "two", 1 << 20)
    await layers.snapshots.delete("s")
    await layers.snapshots.delete("s")
    assert await layers.snapshots.list() == []
    assert (await layers.attach("two") / "upper" / "closed").is_dir()


async def test_what_is_not_there_cannot_be_cloned(layers: LayerStore) -> None:
    with pytest.raises(FileNotFoundError):
        await layers.snapshots.clone("s", "two", 1 << 20)
    assert not await layers.exists("two")


async def test_a_power_cut_leaves_snapshots_and_clones_whole(
    layers: LayerStore, tmp_path: Path
) -> None:
    await layers.create("one", 1 << 20)
    (await layers.attach("one") / "upper/file").write_bytes(b"then")
    places = ("layers/.snapshots/s/upper/file", "layers/two/upper/file")
    with crashes.watched(tmp_path) as disk:
        await layers.snapshots.take("one", "s")
        assert disk.left()[places[0]] == b"then"
        await layers.snapshots.clone("s", "two", 1 << 20)
        assert disk.left()[places[1]] == b"then"
        for cut, place in zip(disk.cuts, places, strict=True):
            assert cut[place] == b"then"
        for place in ("layers/.snapshots/s", "layers/two"):
            assert disk.left()[f"{place}/size"].isdigit()  # type: ignore[union-attr]


async def test_a_power_cut_leaves_a_deleted_snapshot_whole_or_nothing_of_it(
    layers: LayerStore, tmp_path: Path
) -> None:
    await layers.create("one", 1 << 20)
    await layers.snapshots.take("one", "s")
    with crashes.watched(tmp_path) as disk:
        await layers.snapshots.delete("s")
        assert not [path for path in disk.left() if path.startswith("layers/.snapshots/s")]
        [moved] = disk.cuts
        assert "layers/.snapshots/.old-s/size" in moved
    assert await layers.snapshots.list() == []


async def test_a_clone_is_a_file_system_of_its_own_from_the_first_moment(
    layers: LayerStore, tmp_path: Path
) -> None:
    """No crash can come between its name and that."""
    await layers.create("one", 1 << 20)
    mark = overlay.attribute("uuid")
    os.setxattr(await layers.attach("one") / "upper", mark, b"0" * 16)
    named: list[Path] = []

    def named_now(draft: Path, target: Path) -> None:
        named.append(target)
        assert mark not in os.listxattr(draft / "upper")
        draft.rename(target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "name", named_now)
        await layers.snapshots.take("one", "s")
        await layers.snapshots.clone("s", "two", 1 << 20)
    assert named == [tmp_path / "layers/.snapshots/s", tmp_path / "layers/two"]
