import asyncio
from typing import Any

import pytest

from atoll.engine.commands import calls, sessions
from atoll.engine.engine import Engine
from atoll.engine.link.link import LinkError
from atoll.wire.frames import Kind
from atoll.wire.process import CreateSessionRequest
from atoll.wire.sandbox import SandboxOptions, State
from integration.engine.scripted import Peer, World


async def test_a_session_is_made_with_what_was_asked(engine: Engine, world: World) -> None:
    async def create(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, {"id": header["id"], "cwd": header["cwd"]})

    world.runtime.scripts["session.create"] = create
    endpoint = await engine.sandbox("N", "box").ensure_running()
    wanted = CreateSessionRequest(id="s", cwd="/tmp", command_timeout_ms=1_500)
    made = await sessions.create(endpoint, wanted)
    assert (made.id, made.cwd) == ("s", "/tmp")
    assert world.runtime.seen[-1]["command_timeout"] == 1.5


async def test_a_malformed_answer_is_the_agents_fault(engine: Engine, world: World) -> None:
    endpoint = await engine.sandbox("N", "box").ensure_running()
    with pytest.raises(LinkError):
        await sessions.listing(endpoint)


async def test_state_that_cannot_be_kept_or_restored_costs_no_stop_and_no_start(
    engine: Engine, world: World
) -> None:
    async def broken(peer: Peer, header: dict[str, Any]) -> None:
        await peer.raw(b"garbage")

    await engine.store.save_sessions("N", "box", b"not json")
    world.runtime.scripts |= {"session.export": broken, "session.import": broken}
    sandbox = engine.sandbox("N", "box")
    await sandbox.ensure_running()
    await sandbox.stop()
    await engine.store.save_sessions("N", "box", b"{}")
    await sandbox.ensure_running()


async def test_a_destroyed_sandbox_leaves_no_state_to_the_next_of_its_name(
    engine: Engine, world: World
) -> None:
    sandbox = engine.sandbox("N", "box")
    await sandbox.ensure_running()
    await sandbox.stop()
    assert await engine.store.sessions("N", "box") is not None
    await sandbox.destroy()
    assert await engine.store.sessions("N", "box") is None


KEPT = {
    "env": {},
    "sessions": [
        {"id": "s", "name": "n", "cwd": "/", "here": "/tmp", "user": "u", "isolation": True,
         "created_at": "2026-01-02T03:04:05Z", "command_timeout": 1.5, "state": "s3cret"},
    ],
}  # fmt: skip


async def exporting(peer: Peer, header: dict[str, Any]) -> None:
    await peer.send(Kind.REPLY, KEPT)


async def creating(peer: Peer, header: dict[str, Any]) -> None:
    await peer.send(Kind.REPLY, {"id": header["id"]})


async def test_sessions_of_a_sandbox_that_sleeps_are_told_without_waking_it(
    engine: Engine, world: World
) -> None:
    world.runtime.scripts["session.export"] = exporting
    sandbox = engine.sandbox("N", "box")
    assert (await calls.list_sessions(sandbox)).sessions == []
    await sandbox.ensure_running()
    await sandbox.stop()
    (told,) = (await calls.list_sessions(sandbox)).sessions
    assert (told.id, told.name, told.cwd, told.user) == ("s", "n", "/tmp", "u")
    assert (told.isolation, told.command_timeout_ms) == (True, 1_500)
    assert told.created_at
    assert told.created_at.year == 2026
    assert world.runtime.starts == 1


async def test_sessions_of_a_frozen_sandbox_are_told_without_thawing_it(
    engine: Engine, world: World
) -> None:
    world.runtime.scripts |= {"session.export": exporting, "session.create": creating}
    sandbox = engine.sandbox("N", "box")
    await sandbox.configure(SandboxOptions(sleep_mode="freeze"))
    await calls.create_session(sandbox, CreateSessionRequest(id="s"))
    await sandbox.sleep_if_idle(0)
    assert len((await calls.list_sessions(sandbox)).sessions) == 1
    assert world.runtime.paused


async def test_listing_the_sessions_of_a_running_sandbox_does_not_keep_it_awake(
    engine: Engine, world: World
) -> None:
    async def listing(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, {"sessions": [{"id": "live"}]})

    world.runtime.scripts["session.list"] = listing
    sandbox = engine.sandbox("N", "box")
    await sandbox.ensure_running()
    before = sandbox.activity.last
    assert [s.id for s in (await calls.list_sessions(sandbox)).sessions] == ["live"]
    assert sandbox.activity.last == before


async def test_a_sandbox_that_dies_during_a_listing_is_told_as_it_was_kept(
    engine: Engine, world: World
) -> None:
    async def dying(peer: Peer, header: dict[str, Any]) -> None:
        world.runtime.kill(next(iter(world.runtime.running)))

    world.runtime.scripts |= {"session.export": exporting, "session.list": dying}
    sandbox = engine.sandbox("N", "box")
    endpoint = await sandbox.ensure_running()
    await sandbox.carried.keep(endpoint, lambda: True)
    assert len((await calls.list_sessions(sandbox)).sessions) == 1
    assert (await engine.info("N", "box")).state is State.STOPPED


async def test_damaged_state_in_the_store_is_no_sessions(engine: Engine, world: World) -> None:
    await engine.store.save_sessions("N", "box", b'{"sessions": 7}')
    assert (await calls.list_sessions(engine.sandbox("N", "box"))).sessions == []


async def test_sessions_used_lately_survive_a_container_that_dies(
    engine: Engine, world: World
) -> None:
    world.runtime.scripts |= {"session.export": exporting, "session.create": creating}
    sandbox = engine.sandbox("N", "box")
    await calls.create_session(sandbox, CreateSessionRequest(id="s"))
    await engine._timers._note()
    endpoint = await sandbox.ensure_running()
    world.runtime.kill(endpoint.host_ref)
    await sandbox.check_alive(endpoint)
    await sandbox.ensure_running()
    assert {**KEPT, "op": "session.import"} in world.runtime.seen


async def test_sessions_are_kept_only_after_use_and_not_too_often(
    engine: Engine, world: World
) -> None:
    sandbox = engine.sandbox("N", "box")
    endpoint = await sandbox.ensure_running()

    async def kept() -> int:
        await sandbox.carried.keep_changes(endpoint, lambda: True)
        return [header["op"] for header in world.runtime.seen].count("session.export")

    assert await kept() == 0
    sandbox.carried.note_change()
    assert [await kept(), await kept()] == [1, 1]

    async def large(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, b" " * (4 << 20))

    world.runtime.scripts["session.export"] = large
    sandbox.carried.note_change()
    assert await kept() == 2
    sandbox.carried.note_change()
    assert await kept() == 2


async def test_what_is_exported_during_a_destroy_is_not_kept(engine: Engine, world: World) -> None:
    destroyed = asyncio.Event()

    async def late(peer: Peer, header: dict[str, Any]) -> None:
        await destroyed.wait()
        await peer.send(Kind.REPLY, KEPT)

    world.runtime.scripts["session.export"] = late
    sandbox = engine.sandbox("N", "box")
    endpoint = await sandbox.ensure_running()
    keeping = asyncio.create_task(
        sandbox.carried.keep(endpoint, lambda: sandbox.endpoint is endpoint)
    )
    await asyncio.sleep(0.01)
    destroying = asyncio.create_task(sandbox.destroy())
    while sandbox.endpoint:
        await asyncio.sleep(0)
    destroyed.set()
    await asyncio.gather(keeping, destroying)
    assert await engine.store.sessions("N", "box") is None
