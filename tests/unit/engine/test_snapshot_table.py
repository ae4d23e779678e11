import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from atoll.engine.record import InForce
from atoll.engine.snapshot_table import Kept, SnapshotTable
from atoll.engine.store import Store
from atoll.wire.sandbox import Limits, SandboxOptions
from atoll.wire.snapshots import Snapshot

FORCE = InForce(
    image="i",
    digest="sha256:1",
    instance_type="lite",
    level="container",
    runtime="runc",
    limits=Limits(memory=1, cpu=1, disk=1, pids=1),
)


def kept(id: str, namespace: str = "N", **fields: object) -> Kept:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    told = Snapshot(id=id, namespace=namespace, sandbox="box", created_at=created, **fields)  # type: ignore[arg-type]
    return Kept(snapshot=told, options=SandboxOptions(image="i"), env={"A": None}, in_force=FORCE)


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[SnapshotTable]:
    store = await Store(tmp_path / "atoll.db").open()
    yield SnapshotTable(store)
    await store.close()


async def test_what_was_added_is_found_as_it_was(table: SnapshotTable) -> None:
    await table.add(kept("s1", name="n", labels={"a": "b"}))
    assert await table.get("N", "s1") == kept("s1", name="n", labels={"a": "b"})
    assert await table.get("M", "s1") is None
    assert await table.digest("s1") == "sha256:1"
    await table.delete("s1")
    assert await table.get("N", "s1") is None
    assert await table.digest("s1") is None


async def test_ends_are_told_with_the_ids(table: SnapshotTable) -> None:
    ends = datetime(2026, 2, 1, tzinfo=UTC)
    await table.add(kept("s1", expires_at=ends))
    await table.add(kept("s2", namespace="M"))
    assert await table.all() == {"s1": ends.timestamp(), "s2": None}


async def test_an_id_is_never_given_twice(table: SnapshotTable) -> None:
    await table.add(kept("s1"))
    with pytest.raises(sqlite3.IntegrityError):
        await table.add(kept("s1", namespace="M"))
    assert await table.get("M", "s1") is None


async def test_pages_follow_the_order_in_which_they_were_added(table: SnapshotTable) -> None:
    for number in range(250):
        await table.add(kept(f"s{249 - number}", labels={"even": str(number % 2 == 0)}))
    found: list[str] = []
    end: int | None = 0
    pages = 0
    while end is not None:
        page, end = await table.page("N", sandbox="box", labels={}, after=end, limit=100)
        found += [told.id for told in page]
        pages += 1
    assert (found, pages) == ([f"s{249 - number}" for number in range(250)], 3)
    page, end = await table.page("N", sandbox=None, labels={"even": "True"}, after=0, limit=125)
    assert (len(page), end) == (125, None)
    assert await table.page("N", sandbox="other", labels={}, after=0, limit=9) == ([], None)
