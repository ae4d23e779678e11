import asyncio

import pytest

from atoll.engine.engine import Engine
from atoll.settings import LifecycleSettings
from atoll.wire.sandbox import SandboxOptions, State
from integration.engine.calling import run
from integration.engine.conftest import Opener
from integration.engine.scripted import World


async def frozen(engine: Engine) -> None:
    async with asyncio.timeout(3):
        while (await engine.info("N", "box")).state is not State.FROZEN:
            await asyncio.sleep(0.02)


async def test_a_frozen_sandbox_goes_on_with_the_next_call(opener: Opener, world: World) -> None:
    async with opener(LifecycleSettings(sleep_after=0.1)) as engine:
        await engine.sandbox("N", "box").configure(SandboxOptions(sleep_mode="freeze"))
        await run(engine, "x")
        await frozen(engine)
        assert world.runtime.paused
        assert await run(engine, "y", op="o2") == b"y\n"
        assert not world.runtime.paused
        assert world.runtime.starts == 1


async def test_a_frozen_sandbox_is_found_by_the_next_engine(opener: Opener, world: World) -> None:
    async with opener(LifecycleSettings(sleep_after=0.1)) as engine:
        await engine.sandbox("N", "box").configure(SandboxOptions(sleep_mode="freeze"))
        await run(engine, "x")
        await frozen(engine)
    async with opener() as engine:
        assert (await engine.info("N", "box")).state is State.FROZEN
        assert await run(engine, "y", op="o2") == b"y\n"
        assert world.runtime.starts == 1


@pytest.mark.parametrize("end", ["stop", "destroy"])
async def test_a_frozen_sandbox_can_be_ended(opener: Opener, world: World, end: str) -> None:
    async with opener(LifecycleSettings(sleep_after=0.1)) as engine:
        sandbox = engine.sandbox("N", "box")
        await sandbox.configure(SandboxOptions(sleep_mode="freeze"))
        await run(engine, "x")
        await frozen(engine)
        await getattr(sandbox, end)()
        assert world.left() == {}


async def test_a_sandbox_that_cannot_be_frozen_runs_on(opener: Opener, world: World) -> None:
    world.runtime.failures["pause"] = TimeoutError()
    async with opener(LifecycleSettings(sleep_after=0.1)) as engine:
        await engine.sandbox("N", "box").configure(SandboxOptions(sleep_mode="freeze"))
        await run(engine, "x")
        await asyncio.sleep(0.8)
        assert not world.runtime.paused
        assert await run(engine, "y", op="o2") == b"y\n"
