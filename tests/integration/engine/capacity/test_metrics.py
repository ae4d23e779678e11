from atoll.engine.engine import Engine
from atoll.engine.sandbox import Sandbox
from atoll.runtime.base import Usage
from atoll.wire.sandbox import Metrics
from integration.engine.scripted import World


async def measured(box: Sandbox) -> Metrics:
    assert await box.load()
    return await box.metrics()


async def test_measuring_wakes_nothing_and_what_sleeps_uses_nothing(
    engine: Engine, world: World
) -> None:
    async def usage(host_ref: str) -> Usage:
        return Usage(memory=5, cpu_time=0.5, pids=3, oom_kills=1)

    world.runtime.usage = usage  # type: ignore[method-assign]
    box = engine.sandbox("N", "box")
    await box.ensure_running()
    awake = await measured(box)
    assert (awake.memory, awake.cpu_time, awake.pids, awake.oom_kills) == (5, 0.5, 3, 1)
    assert (awake.bytes_up, awake.bytes_down) == (7, 8)
    assert (awake.connections, awake.allowed, awake.refused, awake.handled) == (1, 2, 3, 4)
    await box.stop()
    asleep = await measured(box)
    assert (asleep.memory, asleep.pids, world.runtime.starts) == (0, 0, 1)
    assert (asleep.bytes_up, asleep.connections) == (0, 0)
    assert (asleep.limits, asleep.isolation) == (awake.limits, awake.isolation)
    assert awake.isolation == world.runtime.level
