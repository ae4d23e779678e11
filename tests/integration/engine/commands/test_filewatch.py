import asyncio
from typing import Any

import msgspec
import pytest

from atoll.engine.commands import filewatch
from atoll.engine.engine import Engine
from atoll.errors import OperationInterruptedError
from atoll.wire.files import WatchEvent
from atoll.wire.frames import Kind
from atoll.wire.sandbox import State
from integration.engine.scripted import Peer, World

HEADER = {"op": "fs.watch", "path": "/w"}


async def watching(peer: Peer, header: dict[str, Any]) -> None:
    await peer.send(Kind.EVENT, {"type": "watching", "path": header["path"]})
    await peer.next()


async def test_an_open_watch_does_not_hold_off_sleep(engine: Engine, world: World) -> None:
    world.runtime.scripts["fs.watch"] = watching
    sandbox = engine.sandbox("N", "box")
    async with filewatch.watch(sandbox, HEADER) as frames:
        await anext(frames)
        assert sandbox.idle


async def test_an_event_counts_as_use(engine: Engine, world: World) -> None:
    async def event_at_once(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.EVENT, {"type": "create", "path": "/x"})
        await peer.send(Kind.END, {})

    world.runtime.scripts["fs.watch"] = event_at_once
    sandbox = engine.sandbox("N", "box")
    await sandbox.ensure_running()
    async with filewatch.watch(sandbox, HEADER) as frames:
        sandbox.activity.last = 0
        assert [frame.kind async for frame in frames] == [Kind.EVENT, Kind.END]
    assert sandbox.activity.last > 0


@pytest.mark.parametrize(
    ("end", "reason"), [("stop", "sandbox_stopped"), ("destroy", "sandbox_destroyed")]
)
async def test_a_watch_is_told_of_the_end_of_its_sandbox(
    engine: Engine, world: World, end: str, reason: str
) -> None:
    world.runtime.scripts["fs.watch"] = watching
    sandbox = engine.sandbox("N", "box")
    async with filewatch.watch(sandbox, HEADER) as frames:
        await anext(frames)
        await getattr(sandbox, end)()
        stopped = msgspec.json.decode((await anext(frames)).payload, type=WatchEvent)
        assert (stopped.type, stopped.path, stopped.reason) == ("stopped", "/w", reason)
        assert [frame.kind async for frame in frames] == [Kind.END]


async def test_an_agent_that_fails_is_an_error_and_no_end(engine: Engine, world: World) -> None:
    async def broken(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.EVENT, {"type": "watching", "path": header["path"]})

    world.runtime.scripts["fs.watch"] = broken
    async with filewatch.watch(engine.sandbox("N", "box"), HEADER) as frames:
        await anext(frames)
        with pytest.raises(OperationInterruptedError):
            await anext(frames)


async def test_a_frozen_sandbox_ends_a_watch_that_hears_nothing(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filewatch, "SILENCE", 0.05)

    async def silent(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.EVENT, {"type": "watching", "path": header["path"]})
        await asyncio.sleep(10)

    world.runtime.scripts["fs.watch"] = silent
    sandbox = engine.sandbox("N", "box")
    async with filewatch.watch(sandbox, HEADER) as frames:
        await anext(frames)
        assert sandbox.record
        frozen = msgspec.structs.replace(sandbox.record, state=State.FROZEN)
        monkeypatch.setattr(type(sandbox), "record", property(lambda _: frozen))
        stopped = msgspec.json.decode((await anext(frames)).payload, type=WatchEvent)
    assert stopped.reason == "sandbox_frozen"
