"""`max_instances` of a namespace, where several engines start its sandboxes."""

import asyncio
import random
from typing import Any

import pytest

from atoll.engine.cluster import following
from atoll.engine.engine import Engine
from atoll.engine.lifecycle import starting
from atoll.errors import MaxInstancesExceededError, SandboxError
from atoll.wire.sandbox import NamespaceConfig, SandboxOptions, State
from integration.engine.cluster.replicas import Pair, until
from integration.engine.scripted import World
from objects import Objects


class Most:
    """The most containers of sandboxes that there were at the same time."""

    def __init__(self, world: World, cluster: Objects) -> None:
        self.seen, self._world, self._start = 0, world, world.runtime.start
        self._cluster = cluster
        world.runtime.start = self._count  # type: ignore[method-assign]

    async def _count(self, spec: Any) -> Any:
        made = await self._start(spec)
        named = {one.get("pod") for one in self._cluster.there.values()}  # not what is destroyed
        self.seen = max(self.seen, len(named & self._world.runtime.running.keys()))
        return made


async def limit(pair: Pair, places: int | None) -> None:
    await pair[0].configure_namespace("n", NamespaceConfig(max_instances=places))
    await until(
        lambda: "n" in pair[1].namespaces and pair[1].namespaces["n"].max_instances == places
    )


async def start(engine: Engine, id: str) -> None:
    await engine.sandbox("n", id).ensure_running()


@pytest.mark.parametrize("lag", [0.0, 0.02])
async def test_fifty_creates_by_two_engines_fill_the_places_and_no_more(
    pair: Pair, world: World, cluster: Objects, lag: float
) -> None:
    await limit(pair, 10)
    cluster.lag, most = lag, Most(world, cluster)
    world.runtime.delay = 0.01
    calls = [start(pair[n % 2], f"b{n}") for n in range(50)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [one for one in outcomes if isinstance(one, MaxInstancesExceededError)]
    assert len(refused) == 40, outcomes
    assert len(world.runtime.running) == most.seen == outcomes.count(None) == 10
    assert refused[0].context["max_instances"] == 10
    assert refused[0].retry_after


async def test_a_place_is_free_for_all_once_its_sandbox_has_ended(pair: Pair, world: World) -> None:
    await limit(pair, 2)
    first, second = pair
    await start(first, "a")
    await start(second, "b")
    for n, end in enumerate(["stop", "destroy", "stop"]):
        await until(lambda: sum(first.sandbox("n", id).is_in(State.RUNNING) for id in "ab") == 2)
        await until(lambda: sum(second.sandbox("n", id).is_in(State.RUNNING) for id in "ab") == 2)
        with pytest.raises(MaxInstancesExceededError):
            await start(pair[n % 2], "c")
        await getattr(pair[n % 2].sandbox("n", "a"), end)()
        await until(lambda: not any(engine.sandbox("n", "a").endpoint for engine in pair))
        await start(pair[(n + 1) % 2], "a")
    assert len(world.runtime.running) == 2


async def test_what_ran_before_there_was_a_limit_has_a_place(pair: Pair) -> None:
    await start(pair[0], "a")
    await limit(pair, 2)
    await asyncio.gather(start(pair[0], "b"), start(pair[1], "a"))
    for engine in pair:
        with pytest.raises(MaxInstancesExceededError):
            await start(engine, "c")


async def test_who_queues_gets_the_place_that_another_engine_frees(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "LOOK_AGAIN", 0.02)
    await limit(pair, 1)
    box = pair[1].sandbox("n", "b")
    await box.configure(SandboxOptions(queue_ms=10_000))
    _, waiting = await asyncio.gather(start(pair[0], "a"), asyncio.sleep(0))
    waiting = asyncio.create_task(box.ensure_running())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await pair[0].sandbox("n", "a").stop()
    await asyncio.wait_for(waiting, 5)


async def test_what_an_engine_had_that_was_taken_for_dead_is_free_and_it_starts_nothing_more(
    pair: Pair, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands still with a place, goes on when another sandbox has it."""
    monkeypatch.setattr(following, "TEND", 0.05)
    first, second = pair
    await limit(pair, 1)
    reached, opened = asyncio.Event(), asyncio.Event()
    place, dead = first.store.place, {"a"}

    async def still(*given: Any) -> bool:
        found = await place(*given)
        reached.set()
        await opened.wait()
        return found

    first.store.place = still  # type: ignore[assignment, method-assign]
    second._shared.peers.alive = lambda actor: actor not in dead  # type: ignore[method-assign]
    calling = asyncio.create_task(start(first, "a"))
    await asyncio.wait_for(reached.wait(), 5)
    async with asyncio.timeout(10):
        while (found := await second.store.get("n", "a")) is None or found.live:
            await second.sandbox("n", "a").load()
            with_a = second.sandbox("n", "a")
            await with_a.stop()
    await start(second, "b")
    dead.clear()
    opened.set()
    with pytest.raises(SandboxError):
        await asyncio.wait_for(calling, 10)
    record = second.sandbox("n", "b").record
    assert record
    assert set(world.runtime.running) == {record.host_ref}


@pytest.mark.parametrize("seed", range(8))
async def test_no_order_of_starts_and_ends_exceeds_a_limit(
    pair: Pair, world: World, cluster: Objects, seed: int
) -> None:
    order, most = random.Random(seed), Most(world, cluster)
    await limit(pair, 3)

    async def use() -> None:
        await asyncio.sleep(order.random() / 10)
        box = pair[order.randrange(2)].sandbox("n", f"b{order.randrange(8)}")
        try:
            match order.randrange(4):
                case 0:
                    await box.stop()
                case 1:
                    await box.destroy()
                case _:
                    await box.ensure_running()
        except SandboxError as error:
            # Others destroy it while it starts.
            assert error.retry_after or error.code in {"SANDBOX_DESTROYED", "CONTAINER_UNAVAILABLE"}

    await asyncio.gather(*(use() for _ in range(80)))
    assert most.seen <= 3
    await asyncio.gather(*(pair[0].sandbox("n", f"b{n}").destroy() for n in range(8)))
    await until(lambda: not world.runtime.running)
    await until(lambda: not any(engine._shared.admission._live.total() for engine in pair))
    for n in range(3):
        await start(pair[n % 2], f"new{n}")
