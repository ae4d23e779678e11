import asyncio
from typing import Any

import pytest

from atoll.engine.engine import Engine
from atoll.errors import OperationInterruptedError
from atoll.settings import LifecycleSettings
from atoll.wire.frames import Kind
from atoll.wire.process import StartProcessRequest
from atoll.wire.sandbox import SandboxOptions, State
from integration.engine.calling import pending, run
from integration.engine.conftest import Opener
from integration.engine.scripted import Peer, World


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


async def test_a_sandbox_that_cannot_be_frozen_is_stopped_and_says_so(
    opener: Opener, world: World
) -> None:
    world.runtime.failures["pause"] = TimeoutError()
    async with opener(LifecycleSettings(sleep_after=0.1)) as engine:
        await engine.sandbox("N", "box").configure(SandboxOptions(sleep_mode="freeze"))
        await run(engine, "x")
        async with asyncio.timeout(5):
            while (await engine.info("N", "box")).state is not State.STOPPED:
                await asyncio.sleep(0.02)
        assert world.left() == {}
        told = await engine.store.events.after(("N", "box"), 0)
        assert [(event.type, event.reason) for event in told][-5:] == [
            ("frozen", "idle"),
            ("running", None),
            ("freeze_failed", "idle"),
            ("stopping", "freeze_failed"),
            ("stopped", "freeze_failed"),
        ]
        world.runtime.failures.clear()
        assert await run(engine, "y", op="o2") == b"y\n"


async def test_connections_end_before_the_freeze_and_are_made_again_after_it(
    engine: Engine, world: World
) -> None:
    """The agent is frozen too: what is sent to it, or waits for it, would hang."""
    open_ends = 0

    async def hang(peer: Peer, header: dict[str, Any]) -> None:
        nonlocal open_ends
        open_ends += 1
        try:
            await peer.send(Kind.STARTED, {"pid": 1})
            await peer.next()
        finally:
            open_ends -= 1

    at_pause: list[int] = []
    pause = world.runtime.pause

    async def watched_pause(host_ref: str) -> None:
        await asyncio.sleep(0.05)
        at_pause.append(open_ends)
        await pause(host_ref)

    world.runtime.scripts["exec"] = world.runtime.scripts["attach"] = hang
    world.runtime.pause = watched_pause  # type: ignore[method-assign]
    box = engine.sandbox("N", "box")
    await box.configure(SandboxOptions(sleep_mode="freeze"))
    await engine.processes.start(box, StartProcessRequest(command="server"), None)
    assert open_ends == 1
    await box.sleep()
    await asyncio.sleep(0.1)
    assert (at_pause, open_ends) == ([0], 0)
    await box.ensure_running()
    async with asyncio.timeout(5):
        while open_ends != 1:
            await asyncio.sleep(0.01)
    await box.destroy()


async def test_a_command_that_a_freeze_cuts_is_told_so_at_once(
    engine: Engine, world: World
) -> None:
    box = engine.sandbox("N", "box")
    await box.configure(SandboxOptions(sleep_mode="freeze"))
    async with pending(engine, world) as task:
        await box.sleep()
        with pytest.raises(OperationInterruptedError, match="was frozen") as caught:
            await task
        assert caught.value.context["reason"] == "frozen"


async def test_sleeping_is_idempotent_and_wakes_nothing(engine: Engine, world: World) -> None:
    box = engine.sandbox("N", "box")
    await box.sleep()
    assert world.runtime.starts == 0
    await box.configure(SandboxOptions(sleep_mode="freeze"))
    await box.ensure_running()
    await asyncio.gather(box.sleep(), box.sleep(), box.sleep())
    await box.sleep()
    assert (await engine.info("N", "box")).state is State.FROZEN
    told = [event.type for event in await engine.store.events.after(("N", "box"), 0)]
    assert told == ["created", "starting", "running", "frozen"]


async def test_a_thaw_that_a_crash_cut_short_is_finished(opener: Opener, world: World) -> None:
    """Otherwise the next engine would take the frozen sandbox for one whose agent is dead."""
    async with opener() as engine:
        await engine.sandbox("N", "box").ensure_running()
        (host_ref,) = world.runtime.running
    world.runtime.paused.add(host_ref)
    async with opener() as engine:
        assert not world.runtime.paused
        assert (await engine.info("N", "box")).state is State.RUNNING
