import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from atoll.engine.store import events
from atoll.engine.store.record import Record
from atoll.engine.store.store import Store
from atoll.wire.sandbox import State

EPOCH = datetime.fromtimestamp(1, UTC)
BOX = "N", "box"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store(tmp_path / "atoll.db").open()
    yield opened
    await opened.close()


def record(id: str = "box", **fields: object) -> Record:
    base = Record(namespace="N", id=id, state=State.CREATED, layer_id=f"l-{id}", created_at=EPOCH)
    return msgspec.structs.replace(base, **fields)


async def types(store: Store) -> list[str]:
    return [event.type for event in await store.events.after(BOX, 0)]


async def test_every_change_of_state_is_an_event_and_other_changes_are_none(store: Store) -> None:
    made = await store.create(record())
    made = await store.update(msgspec.structs.replace(made, env={"A": "1"}))
    made = await store.update(msgspec.structs.replace(made, state=State.STARTING, generation=3))
    await store.update(msgspec.structs.replace(made, state=State.DESTROYED, reason="ttl"))
    found = await store.events.after(BOX, 0)
    assert [(e.seq, e.type, e.generation, e.reason) for e in found] == [
        (1, "created", 0, None),
        (2, "starting", 3, None),
        (3, "destroyed", 3, "ttl"),
    ]


async def test_sandboxes_have_numbers_of_their_own(store: Store) -> None:
    await store.create(record())
    await store.create(record("other"))
    assert await types(store) == ["created"]


async def test_only_the_last_events_are_kept_and_numbers_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEPT", 3)
    made = await store.create(record())
    for n in range(5):
        await store.events.add(made, f"e{n}")
    assert [event.seq for event in await store.events.after(BOX, 0)] == [4, 5, 6]


async def test_events_go_with_the_tombstone(store: Store) -> None:
    made = await store.create(record())
    await store.update(msgspec.structs.replace(made, state=State.DESTROYED, expires_at=EPOCH))
    assert await types(store) == ["created", "destroyed"]
    await store.forget_tombstones(2)
    assert await types(store) == []


async def test_who_follows_gets_old_and_new_events_once(store: Store) -> None:
    made = await store.create(record())
    following = store.events.follow(BOX, 0)
    assert (await anext(following)).type == "created"
    waiting = asyncio.ensure_future(anext(following))
    await store.events.add(record("other"), "elsewhere")
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await store.events.add(made, "one")
    assert (await waiting).type == "one"
    await store.events.add(made, "two")
    assert (await anext(following)).type == "two"
    await following.aclose()
