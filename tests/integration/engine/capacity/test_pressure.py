from typing import Any

import pytest

from atoll.engine.capacity import pressure
from atoll.engine.capacity.node import Free
from atoll.engine.engine import Engine
from atoll.wire.sandbox import SandboxOptions, State
from integration.engine.calling import pending
from integration.engine.scripted import World

GB = 1 << 30


@pytest.fixture(autouse=True)
def _memory(engine: Engine, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """A node on which every sandbox takes 100 MiB of 1.3 GiB; the mark is at 1 GiB."""

    def free() -> Free:
        return Free(GB + 300 * (1 << 20) - len(world.runtime.running) * 100 * (1 << 20), GB, GB)

    monkeypatch.setattr(engine._shared.admission, "free", free)
    monkeypatch.setattr(engine._shared.admission, "low_memory", GB)


async def used(engine: Engine, id: str, idle: float, **options: Any) -> None:
    box = engine.sandbox("N", id)
    await box.configure(SandboxOptions(**options))
    await box.ensure_running()
    box.activity.last -= idle


async def states(engine: Engine) -> dict[str, State]:
    page = await engine.list("N", state=None, labels={}, cursor=None, limit=99)
    return {info.id: info.state for info in page.sandboxes}


async def test_the_ones_used_longest_ago_are_stopped_until_there_is_memory(
    engine: Engine,
) -> None:
    for id, idle in (("c", 30), ("a", 50), ("b", 40), ("d", 20), ("new", 0)):
        await used(engine, id, idle)
    assert await pressure.relieve(engine._shared) == 2
    stopped = {id for id, state in (await states(engine)).items() if state is State.STOPPED}
    assert stopped == {"a", "b"}
    told = await engine.store.events.after(("N", "a"), 0)
    assert told[-1].reason == "memory"
    assert await pressure.relieve(engine._shared) == 0


async def test_who_takes_what_nobody_limits_goes_first_and_at_work(
    engine: Engine, world: World
) -> None:
    """The kernel keeps it for as long as the sandbox runs; others need not give way for it."""
    for id in ("a", "b", "greedy", "c"):
        await used(engine, id, 50)
    record = engine.sandbox("N", "greedy").record
    assert record
    assert record.host_ref
    world.runtime.uncounted[record.host_ref] = GB
    async with engine.sandbox("N", "greedy").use():
        await pressure.relieve(engine._shared)
    found = await states(engine)
    assert {id for id, state in found.items() if state is State.STOPPED} == {"greedy"}
    assert (await engine.store.events.after(("N", "greedy"), 0))[-1].reason == "memory"


async def test_frozen_ones_give_their_memory_up_too(engine: Engine, world: World) -> None:
    await used(engine, "frozen", 0, sleep_mode="freeze")
    await engine.sandbox("N", "frozen").sleep()
    engine.sandbox("N", "frozen").activity.last -= 60
    for id in ("a", "b", "c"):
        await used(engine, id, 0)
    assert await pressure.relieve(engine._shared) == 1
    assert (await states(engine))["frozen"] is State.STOPPED
    assert not world.runtime.paused


async def test_what_is_in_use_or_kept_alive_is_spared(engine: Engine, world: World) -> None:
    await used(engine, "kept", 60, keep_alive=True)
    for id in ("a", "b", "c"):
        await used(engine, id, 1)
    async with pending(engine, world):
        engine.sandbox("N", "box").activity.last -= 60
        assert await pressure.relieve(engine._shared) == 0
