import asyncio
from contextlib import suppress

from atoll.engine.engine import Engine
from atoll.engine.store.record import CONTAINER_ENDED
from atoll.wire.sandbox import State
from integration.engine.calling import run
from integration.engine.scripted import World


async def test_a_container_that_dies_without_any_call_is_noticed_at_once(
    engine: Engine, world: World
) -> None:
    """Not at the next call, nor when the reaper comes by."""
    process = await asyncio.create_subprocess_exec("sleep", "600")
    world.runtime.pid = process.pid
    try:
        await run(engine, "hi")
        sandbox = engine.sandbox("N", "box")
        assert sandbox.is_in(State.RUNNING)
        (host_ref,) = world.runtime.running
        world.runtime.running.pop(host_ref)
        process.kill()
        async with asyncio.timeout(10):
            while not sandbox.is_in(State.STOPPED):
                await asyncio.sleep(0.01)
        assert sandbox.record is not None
        assert sandbox.record.reason == CONTAINER_ENDED
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
