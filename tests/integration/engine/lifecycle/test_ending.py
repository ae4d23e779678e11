import asyncio
from typing import Any

import pytest

from atoll.engine.engine import Engine
from atoll.errors import (
    OperationInterruptedError,
    SandboxDestroyedError,
    SandboxNotFoundError,
)
from atoll.wire.frames import Kind
from atoll.wire.sandbox import SandboxOptions
from integration.engine.calling import pending, run
from integration.engine.scripted import Peer, World


async def test_destroy_leaves_a_tombstone_and_the_id_can_be_used_again(
    engine: Engine, world: World
) -> None:
    await run(engine, "x")
    before = await world.layers.list()
    await asyncio.gather(*(engine.sandbox("N", "box").destroy() for _ in range(3)))
    assert world.left() == {}
    assert await world.layers.list() == []
    with pytest.raises(SandboxNotFoundError):
        await engine.info("N", "box")
    await engine.sandbox("N", "box").destroy()
    await run(engine, "x")
    info = await engine.info("N", "box")
    assert info.generation == 2
    assert await world.layers.list() != before


async def test_destroy_during_a_start_ends_it(engine: Engine, world: World) -> None:
    world.runtime.delay = 30
    starting = asyncio.create_task(run(engine, "x"))
    while not world.runtime.running:
        await asyncio.sleep(0.001)
    await engine.sandbox("N", "box").destroy()
    with pytest.raises(SandboxDestroyedError):
        await starting
    assert world.left() == {}
    assert await world.layers.list() == []


async def test_a_pending_command_is_told_that_its_sandbox_was_destroyed(
    engine: Engine, world: World
) -> None:
    async with pending(engine, world) as task:
        await engine.sandbox("N", "box").destroy()
        with pytest.raises(SandboxDestroyedError):
            await task


async def test_a_pending_command_is_told_that_its_sandbox_was_stopped(
    engine: Engine, world: World
) -> None:
    async with pending(engine, world) as task:
        await engine.sandbox("N", "box").stop()
        with pytest.raises(OperationInterruptedError) as caught:
            await task
        assert caught.value.context["reason"] == "stopped"


async def test_an_end_that_no_peer_is_told_of_ends_what_is_pending(
    engine: Engine, world: World
) -> None:
    """The kernel of a gVisor sandbox is killed with it, and sends no end of its connections."""
    world.runtime.tells = False
    sandbox = engine.sandbox("N", "box")
    async with pending(engine, world) as task, asyncio.timeout(20):
        world.runtime.kill(*world.runtime.running)
        endpoint = sandbox.endpoint
        assert endpoint
        assert await sandbox.check_alive(endpoint)
        with pytest.raises(OperationInterruptedError) as caught:
            await task
        assert caught.value.context["reason"] == "container"
    async with pending(engine, world, "again") as task, asyncio.timeout(20):
        await sandbox.destroy()
        with pytest.raises(SandboxDestroyedError):
            await task


async def test_stopping_is_idempotent_and_keeps_session_state(engine: Engine, world: World) -> None:
    async def export(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, {"state": "s3cret"})

    world.runtime.scripts["session.export"] = export
    sandbox = engine.sandbox("N", "box")
    assert await sandbox.stop() is None
    await run(engine, "x")
    await asyncio.gather(sandbox.stop(), sandbox.stop())
    await sandbox.stop()
    assert [h["op"] for h in world.runtime.seen].count("shutdown") == 1
    await run(engine, "x")
    assert {"op": "session.import", "state": "s3cret"} in world.runtime.seen


async def test_ttl_ends_a_sandbox_whatever_it_does(engine: Engine, world: World) -> None:
    await engine.sandbox("N", "box").configure(SandboxOptions(ttl_ms=100))
    async with pending(engine, world) as task:
        with pytest.raises(SandboxDestroyedError):
            await task
    assert world.left() == {}
