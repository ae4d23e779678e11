from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from atoll.engine.store import namespaces
from atoll.engine.store.record import Record
from atoll.engine.store.store import Store
from atoll.wire.namespaces import NamespaceInfo, NamespaceQuery
from atoll.wire.sandbox import NamespaceConfig, State

EPOCH = datetime.fromtimestamp(1, UTC)


def record(namespace: str, id: str, state: State) -> Record:
    return Record(
        namespace=namespace, id=id, state=state, layer_id=f"{namespace}-{id}", created_at=EPOCH
    )


async def test_what_a_namespace_has_is_counted_and_what_is_destroyed_is_not(
    tmp_path: Path,
) -> None:
    store = await Store(tmp_path / "atoll.db").open()
    await store.create(record("B", "one", State.RUNNING))
    await store.create(record("B", "two", State.STOPPED))
    gone = await store.create(record("Gone", "one", State.STOPPED))
    await store.update(msgspec.structs.replace(gone, state=State.DESTROYED))
    await store.configure_namespace("A", NamespaceConfig())
    page = await namespaces.page(store, NamespaceQuery())
    await store.close()
    assert page.cursor is None
    assert page.namespaces == [
        NamespaceInfo(name="A", sandboxes=0, running=0, configured=True),
        NamespaceInfo(name="B", sandboxes=2, running=1, configured=False),
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
async def test_pages_together_have_each_namespace_once(tmp_path: Path, limit: int) -> None:
    store = await Store(tmp_path / "atoll.db").open()
    for name in ("C", "A", "B"):
        await store.create(record(name, "box", State.STOPPED))
    found, cursor = [], None
    while True:
        page = await namespaces.page(store, NamespaceQuery(cursor=cursor, limit=limit))
        found += [one.name for one in page]
        if (cursor := page.cursor) is None:
            break
    await store.close()
    assert found == ["A", "B", "C"]
