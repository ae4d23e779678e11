"""Several engines that use, stop and destroy the same sandboxes."""

import asyncio

from atoll.engine.leftovers import reaper
from atoll.wire.sandbox import State
from integration.engine.cluster.replicas import Pair, Replicas, until
from integration.engine.scripted import World
from objects import Objects


async def test_fifty_first_calls_by_two_engines_make_one_container(
    pair: Pair, world: World, cluster: Objects
) -> None:
    world.runtime.delay = 0.05
    calls = [pair[n % 2].sandbox("n", "box").ensure_running() for n in range(50)]
    found = await asyncio.gather(*calls)
    assert world.runtime.starts == 1
    assert {endpoint.host_ref for endpoint in found} == set(world.runtime.running)
    assert cluster.kinds()["sandboxes"] == 1


async def test_the_same_when_watches_lag_behind(pair: Pair, world: World, cluster: Objects) -> None:
    """What is heard late must not be taken for what is: neither a start nor an end."""
    cluster.lag = 0.02
    for round in range(5):
        calls = [pair[n % 2].sandbox("n", f"box{round}").ensure_running() for n in range(10)]
        await asyncio.gather(*calls)
    assert world.runtime.starts == 5


async def test_what_one_stops_or_destroys_the_other_starts_again_once(
    pair: Pair, world: World
) -> None:
    first, second = (engine.sandbox("n", "box") for engine in pair)
    for n in range(1, 4):
        used = await first.ensure_running()
        assert (await second.ensure_running()).host_ref == used.host_ref
        assert used.generation == n
        await second.stop()
        await until(lambda: first.endpoint is None)
        assert not world.runtime.running
    await first.ensure_running()
    await second.destroy()
    await until(lambda: first.endpoint is None)
    assert (await first.ensure_running()).generation == 5
    assert world.runtime.starts == 5


async def test_stops_and_uses_by_all_at_once_leave_one_container_at_most(
    pair: Pair, world: World
) -> None:
    async def use(n: int) -> None:
        box = pair[n % 2].sandbox("n", "box")
        await (box.stop() if n % 3 == 0 else box.ensure_running())
        assert len(world.runtime.running) <= 1

    await asyncio.gather(*(use(n) for n in range(30)))
    await asyncio.gather(*(engine.sandbox("n", "box").stop() for engine in pair))
    assert not world.runtime.running


async def test_what_runs_is_found_by_an_engine_that_comes_later(
    replicas: Replicas, world: World
) -> None:
    async with replicas.opened("a") as first:
        used = await first.sandbox("n", "box").ensure_running()
        async with replicas.opened("b") as second:
            assert second.sandbox("n", "box").endpoint is not None
    assert used.host_ref in world.runtime.running
    async with replicas.opened("c") as third:
        assert (await third.sandbox("n", "box").ensure_running()).host_ref == used.host_ref
    assert world.runtime.starts == 1


async def test_nothing_is_removed_as_an_orphan_that_another_engine_just_started(
    pair: Pair, world: World, cluster: Objects
) -> None:
    cluster.lag = 0.5
    await pair[0].sandbox("n", "box").ensure_running()
    life = pair[1]._shared.lifecycle
    assert await reaper.sweep(life, pair[1].store) == 0
    assert len(world.runtime.running) == 1
    assert pair[1].sandbox("n", "box").is_in(State.RUNNING) is False
