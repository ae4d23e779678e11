from datetime import UTC, datetime
from pathlib import Path

from atoll.engine.storage.volume_table import Stored, VolumeTable
from atoll.engine.store.store import Store


def volume(name: str, namespace: str = "N") -> Stored:
    return Stored(
        name=name,
        namespace=namespace,
        layer_id=f"l-{namespace}-{name}",
        size=1,
        read_only=False,
        shared=True,
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
    )


async def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    store = await Store(tmp_path / "db").open()
    await VolumeTable(store).add(volume("a"))
    await store.close()
    store = await Store(tmp_path / "db").open()
    table = VolumeTable(store)
    assert await table.get("N", "a") == volume("a")
    assert await table.get("M", "a") is None
    assert await store.layers() == {"l-N-a"}, "or the reaper would remove its files"
    await table.delete("l-N-a")
    assert await table.all() == []
    await store.close()


async def test_pages_are_in_order_of_name_and_end(tmp_path: Path) -> None:
    store = await Store(tmp_path / "db").open()
    table = VolumeTable(store)
    for name in ("c", "a", "b"):
        await table.add(volume(name))
    await table.add(volume("a", "M"))
    found, cursor = await table.page("N", "", 2)
    assert ([v.name for v in found], cursor) == (["a", "b"], "b")
    found, cursor = await table.page("N", "b", 2)
    assert ([v.name for v in found], cursor) == (["c"], None)
    await store.close()
