import asyncio
from typing import Any

import pytest

from atoll.engine.engine import Engine
from atoll.engine.lifecycle import starting
from atoll.engine.store.record import Record
from atoll.errors import (
    ContainerUnavailableError,
    MaxInstancesExceededError,
    RuntimeNotAvailableError,
    SandboxError,
    SandboxNotFoundError,
)
from atoll.wire.frames import Kind
from atoll.wire.sandbox import NamespaceConfig, SandboxOptions, State
from integration.engine.calling import run
from integration.engine.cluster.replicas import Pair
from integration.engine.conftest import Opener
from integration.engine.scripted import Peer, World


async def test_a_start_that_fails_leaves_nothing_and_may_be_tried_again(
    engine: Engine, world: World
) -> None:
    world.runtime.failures["start"] = ContainerUnavailableError(context={"reason": "runtime"})
    outcomes = await asyncio.gather(
        *(run(engine, "x", op=f"o{n}") for n in range(5)), return_exceptions=True
    )
    assert all(isinstance(outcome, ContainerUnavailableError) for outcome in outcomes)
    assert world.left() == {}
    assert await world.layers.list() == []
    assert (await engine.info("N", "box")).state is State.CREATED
    world.runtime.failures.clear()
    assert await run(engine, "x") == b"x\n"


async def test_a_failed_wake_keeps_the_files(engine: Engine, world: World) -> None:
    await run(engine, "x")
    await engine.sandbox("N", "box").stop()
    layers = await world.layers.list()
    world.networks.failure = ContainerUnavailableError(context={"reason": "network"})
    with pytest.raises(ContainerUnavailableError) as caught:
        await run(engine, "x")
    assert caught.value.context["step"] == "network"
    assert world.left() == {}
    assert await world.layers.list() == layers
    assert (await engine.info("N", "box")).state is State.STOPPED


async def test_an_agent_that_never_says_hello_is_a_failed_start(
    opener: Opener, world: World
) -> None:
    async def silent(peer: Peer, header: dict[str, Any]) -> None:
        await peer.next()

    world.runtime.scripts["hello"] = silent
    async with opener(start_timeout=0.05) as engine:
        with pytest.raises(ContainerUnavailableError) as caught:
            await run(engine, "x")
        assert caught.value.context == {"reason": "runtime", "step": "hello"}
        assert world.left() == {}


@pytest.mark.parametrize(
    "reply", [b"garbage", b"[]", b'{"protocol": "x"}', b'{"protocol": 1, "generation": 99}']
)
async def test_a_wrong_hello_is_a_failed_start(engine: Engine, world: World, reply: bytes) -> None:
    async def wrong(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, reply)

    world.runtime.scripts["hello"] = wrong
    with pytest.raises(SandboxError):
        await run(engine, "x")
    assert world.left() == {}


async def test_a_level_that_is_not_there_is_an_error_and_nothing_else(
    engine: Engine, world: World
) -> None:
    with pytest.raises(RuntimeNotAvailableError):
        await engine.sandbox("N", "box").configure(SandboxOptions(runtime="gvisor"))
    assert world.runtime.starts == 0
    await engine.sandbox("N", "box").configure(SandboxOptions(runtime="scripted"))
    assert await run(engine, "x") == b"x\n"


async def test_a_namespace_runs_no_more_than_it_may(engine: Engine, world: World) -> None:
    await engine.configure_namespace("N", NamespaceConfig(max_instances=1))
    await run(engine, "x", id="a")
    with pytest.raises(MaxInstancesExceededError):
        await run(engine, "x", id="b")
    with pytest.raises(SandboxNotFoundError):
        await engine.info("N", "b")
    await engine.sandbox("N", "a").stop()
    assert await run(engine, "x", id="b") == b"x\n"
    await engine.sandbox("N", "a").configure(SandboxOptions(queue_ms=5_000))
    queued = asyncio.create_task(run(engine, "x", id="a"))
    await asyncio.sleep(0.02)
    await engine.sandbox("N", "b").destroy()
    assert await queued == b"x\n"


async def test_internet_that_is_closed_during_a_start_is_closed(
    engine: Engine, world: World
) -> None:
    world.runtime.delay = 0.05
    starting = asyncio.create_task(run(engine, "x"))
    sandbox = engine.sandbox("N", "box")
    while not world.runtime.running:
        await asyncio.sleep(0.001)
    await sandbox.configure(SandboxOptions(enable_internet=False))
    await starting
    assert "direct" not in world.networks.modes.values()


async def test_who_loses_the_race_for_a_start_leaves_the_winners_container(
    pair: Pair, world: World
) -> None:
    """A call beside it may have read the winner's record by the time the loser tidies up."""
    loser, winner = (engine.sandbox("n", "box") for engine in pair)
    begin = loser.entry.start

    async def start(host_ref: str, layer_id: str) -> Record:
        await winner.ensure_running()
        try:
            return await begin(host_ref, layer_id)
        finally:
            await loser.entry.follow(fresh=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loser.entry, "start", start)
        with pytest.raises(SandboxError):
            await starting.start(loser)
    assert winner.record
    assert list(world.runtime.running) == [winner.record.host_ref]
    assert (await loser.ensure_running()).host_ref == winner.record.host_ref
