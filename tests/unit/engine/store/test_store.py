import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from atoll.engine.store.directory import ConflictError
from atoll.engine.store.record import Record
from atoll.engine.store.store import Store
from atoll.errors import NoSpaceError
from atoll.wire.sandbox import NamespaceConfig, SandboxOptions, State

EPOCH = datetime.fromtimestamp(1, UTC)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store(tmp_path / "atoll.db").open()
    yield opened
    await opened.close()


def record(id: str, **fields: object) -> Record:
    base = Record(namespace="N", id=id, state=State.CREATED, layer_id=f"l-{id}", created_at=EPOCH)
    return msgspec.structs.replace(base, **fields)


async def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    first = await Store(tmp_path / "a.db").open()
    stored = await first.create(record("box", wanted=SandboxOptions(labels={"a": "b"})))
    await first.close()
    second = await Store(tmp_path / "a.db").open()
    assert await second.get("N", "box") == stored
    assert stored.version == 1
    await second.close()


async def test_of_many_creates_exactly_one_wins(store: Store) -> None:
    tries = [store.create(record("box", generation=n)) for n in range(20)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(outcome, Record) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 19


async def test_a_stale_update_is_refused_and_changes_nothing(store: Store) -> None:
    first = await store.create(record("box"))
    second = await store.update(msgspec.structs.replace(first, state=State.STARTING))
    with pytest.raises(ConflictError):
        await store.update(msgspec.structs.replace(first, state=State.DESTROYED))
    assert await store.get("N", "box") == second
    assert second.version == 2


async def test_a_host_ref_belongs_to_one_sandbox(store: Store) -> None:
    await store.create(record("a", host_ref="r"))
    with pytest.raises(ConflictError):
        await store.create(record("b", host_ref="r"))


async def test_listings_page_in_order_and_leave_tombstones_out(store: Store) -> None:
    for id in "edcba":
        await store.create(record(id))
    gone = await store.get("N", "c")
    assert gone
    await store.update(msgspec.structs.replace(gone, state=State.DESTROYED))
    first = await store.list("N", limit=3)
    assert [r.id for r in first.records] == ["a", "b", "d"]
    assert first.cursor == "d"
    rest = await store.list("N", limit=3, cursor=first.cursor)
    assert [r.id for r in rest.records] == ["e"]
    assert rest.cursor is None
    assert [r.id for r in (await store.list("N", state=State.DESTROYED)).records] == ["c"]
    assert (await store.list("other")).records == []


async def test_a_page_ends_when_its_records_are_large(store: Store) -> None:
    wanted = SandboxOptions(env={"A": "x" * 1_000_000})
    for id in "abcdef":
        await store.create(record(id, wanted=wanted))
    first = await store.list("N")
    assert ([r.id for r in first.records], first.cursor) == (["a", "b", "c", "d"], "d")
    rest = await store.list("N", cursor=first.cursor)
    assert ([r.id for r in rest.records], rest.cursor) == (["e", "f"], None)


async def test_listings_filter_by_labels_over_many_rows(store: Store) -> None:
    odd = SandboxOptions(labels={"odd": "1"})
    await asyncio.gather(
        *(
            store.create(record(f"{n:04}", wanted=odd if n % 2 else SandboxOptions()))
            for n in range(1_200)
        )
    )
    page = await store.list("N", labels={"odd": "1"}, limit=550)
    assert len(page.records) == 550
    rest = await store.list("N", labels={"odd": "1"}, limit=550, cursor=page.cursor)
    assert len(rest.records) == 50
    assert rest.cursor is None


async def test_owners_layers_and_expiry_are_found(store: Store) -> None:
    await store.create(record("a", host_ref="r", state=State.RUNNING))
    await store.create(record("b", expires_at=EPOCH + timedelta(seconds=99)))
    await store.create(record("c", state=State.DESTROYED, expires_at=EPOCH + timedelta(seconds=99)))
    assert [r.id for r in await store.owners()] == ["a"]
    assert await store.layers() == {"l-a", "l-b"}
    assert await store.expired(99) == []
    assert await store.expired(100) == [("N", "b")]


async def test_forgotten_tombstones_leave_their_highest_generation(store: Store) -> None:
    """A handle of a destroyed sandbox must never fit a later one of the same id."""
    ends = EPOCH + timedelta(seconds=50)
    await store.create(record("a", generation=7, state=State.DESTROYED, expires_at=ends))
    await store.create(record("b", state=State.DESTROYED, expires_at=ends + timedelta(seconds=99)))
    await store.create(record("c", expires_at=ends))
    assert await store.forget_tombstones(ends.timestamp() - 1) == 0
    assert await store.forget_tombstones(ends.timestamp()) == 1
    assert await store.get("N", "a") is None
    assert await store.get("N", "b")
    assert await store.get("N", "c")
    assert (await store.create(record("a", generation=1))).generation == 8
    await store.update(record("b", version=1, generation=3, state=State.DESTROYED, expires_at=ends))
    assert await store.forget_tombstones(ends.timestamp()) == 1
    assert (await store.create(record("b"))).generation == 7


async def test_meta_keeps_its_first_value(store: Store) -> None:
    assert await store.meta("engine_id", "one") == "one"
    assert await store.meta("engine_id", "two") == "one"


async def test_namespaces_and_sessions_are_kept(store: Store) -> None:
    await store.configure_namespace("N", NamespaceConfig(max_instances=1))
    await store.configure_namespace("N", NamespaceConfig(max_instances=2))
    assert (await store.namespaces())["N"].max_instances == 2
    assert await store.sessions("N", "box") is None
    await store.save_sessions("N", "box", b"x")
    assert await store.sessions("N", "box") == b"x"
    await store.delete_sessions("N", "box")
    assert await store.sessions("N", "box") is None


async def test_watchers_see_every_write_once_it_is_durable(store: Store) -> None:
    seen = store.watch()
    waiting = asyncio.ensure_future(anext(seen))
    await asyncio.sleep(0)
    made = await store.create(record("box"))
    assert await waiting == made
    await seen.aclose()  # type: ignore[attr-defined]


async def fill(store: Store) -> None:
    """Let the file grow no more: what a full disk looks like to SQLite."""
    (pages,) = (await store.read("PRAGMA page_count", ()))[0]
    await store.write(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}"))


async def test_on_a_full_disk_nothing_is_created_but_what_is_there_can_go(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await store.create(record("box"))
    await fill(store)
    large = SandboxOptions(labels={"a": "x" * 200_000})
    with pytest.raises(NoSpaceError):
        await store.update(msgspec.structs.replace(stored, wanted=large))
    with pytest.raises(NoSpaceError):
        await store.create(record("other"))
    assert await store.get("N", "box") == stored
    gone = await store.update(msgspec.structs.replace(stored, state=State.DESTROYED))
    assert gone.version == 2
    await store.write(lambda connection: connection.execute("PRAGMA max_page_count = 9999999"))
    monkeypatch.setattr("atoll.engine.store.ballast.RETRY", 0.0)
    store._ballast._next = 0.0
    await store.create(record("other"))
