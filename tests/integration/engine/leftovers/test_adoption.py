import asyncio
from typing import Any

import pytest

from atoll.engine.engine import Engine
from atoll.engine.leftovers import adoption
from atoll.wire.frames import Kind
from atoll.wire.sandbox import SandboxOptions, State
from integration.engine.conftest import Opener
from integration.engine.scripted import Peer, World


async def start(engine: Engine, id: str = "b0") -> None:
    await engine.sandbox("N", id).ensure_running()


async def test_a_silent_agent_does_not_keep_a_new_engine_from_serving(
    opener: Opener, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(peer: Peer, header: dict[str, Any]) -> None:
        await peer.next()

    async with opener() as engine:
        for n in range(5):
            await start(engine, f"b{n}")
    monkeypatch.setattr(adoption, "TIMEOUT", 0.2)
    world.runtime.scripts["hello"] = silent
    async with asyncio.timeout(1), opener() as engine:
        assert (await engine.info("N", "b0")).state is State.STOPPED


async def previous(peer: Peer, header: dict[str, Any]) -> None:
    """The hello of an agent that an engine of the version before started."""
    await peer.send(Kind.REPLY, {"protocol": 1, "generation": 1, "version": "0.0.9"})


async def test_an_agent_of_the_previous_version_goes_on(opener: Opener, world: World) -> None:
    """An upgrade of the engine interrupts nobody; the next start brings the new agent."""
    async with opener() as engine:
        await start(engine)
    world.runtime.scripts["hello"] = previous
    async with opener() as engine:
        assert (await engine.info("N", "b0")).state is State.RUNNING
        await start(engine)
        assert world.runtime.starts == 1
        del world.runtime.scripts["hello"]
        await engine.sandbox("N", "b0").stop()
        await start(engine)
        assert world.runtime.starts == 2


@pytest.mark.parametrize(
    "answer", [{"protocol": 99, "generation": 1}, {"protocol": 1, "generation": 7}]
)
async def test_an_agent_of_another_kind_is_not_adopted(
    opener: Opener, world: World, answer: dict[str, int]
) -> None:
    async def other(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, answer)

    async with opener() as engine:
        await start(engine)
    world.runtime.scripts["hello"] = other
    async with opener() as engine:
        assert (await engine.info("N", "b0")).state is State.STOPPED
        assert world.left() == {}


async def test_a_frozen_sandbox_is_adopted_unasked(opener: Opener, world: World) -> None:
    async with opener() as engine:
        await start(engine)
        sandbox = engine.sandbox("N", "b0")
        await sandbox.configure(SandboxOptions(sleep_mode="freeze"))
        await sandbox.sleep_if_idle(0)
    asked = len(world.runtime.seen)
    async with opener() as engine:
        assert (await engine.info("N", "b0")).state is State.FROZEN
        assert len(world.runtime.seen) == asked
