import asyncio

import pytest

from atoll.engine.engine import Engine
from atoll.engine.leftovers import reaper
from atoll.settings import LifecycleSettings
from atoll.wire.sandbox import State
from integration.engine.conftest import Opener
from integration.engine.scripted import World


async def test_what_a_timer_raises_does_not_stop_it(
    opener: Opener, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    async def failing(*_: object) -> int:
        nonlocal calls
        calls += 1
        raise OSError

    async with opener(LifecycleSettings(reap_interval=0.02)):
        monkeypatch.setattr(reaper, "sweep", failing)
        async with asyncio.timeout(2):
            while calls < 3:
                await asyncio.sleep(0.01)


async def test_a_container_that_died_unnoticed_is_found(opener: Opener, world: World) -> None:
    async with opener(LifecycleSettings(reap_interval=0.05)) as engine:
        await engine.sandbox("N", "box").ensure_running()
        world.runtime.kill(next(iter(world.runtime.running)))
        async with asyncio.timeout(2):
            while (await engine.info("N", "box")).state is not State.STOPPED:
                await asyncio.sleep(0.01)
    assert world.left() == {}


async def test_idle_time_counts_from_before_a_restart(opener: Opener, world: World) -> None:
    """An engine that restarts more often than `sleep_after` must not keep sandboxes awake."""
    async with opener() as engine:
        await engine.sandbox("N", "box").ensure_running()
        await asyncio.sleep(1.5)
    async with opener(LifecycleSettings(sleep_after=2.0)) as engine:
        async with asyncio.timeout(1.5):
            while (await engine.info("N", "box")).state is not State.STOPPED:
                await asyncio.sleep(0.01)


async def test_a_destroyed_sandbox_is_forgotten_and_its_generation_is_not(opener: Opener) -> None:
    """The object of the id lives on where a caller holds it, and must not count on its row."""
    async with opener(LifecycleSettings(reap_interval=0.02, keep_tombstones=0.1)) as engine:
        box = engine.sandbox("N", "box")
        await box.ensure_running()
        await box.destroy()
        assert await engine.store.get("N", "box")
        async with asyncio.timeout(2):
            while await engine.store.get("N", "box"):
                await asyncio.sleep(0.01)
        await box.ensure_running()
        assert (await engine.info("N", "box")).generation == 2
        await box.destroy()


async def test_closing_leaves_nothing_running(opener: Opener) -> None:
    before = asyncio.all_tasks()
    async with opener():
        pass
    assert asyncio.all_tasks() == before


async def test_a_private_engine_puts_all_to_sleep(engine: Engine, world: World) -> None:
    for id in ("a", "b"):
        await engine.sandbox("N", id).ensure_running()
    await engine.sleep_used()
    assert world.left() == {}
    assert (await engine.info("N", "a")).state is State.STOPPED


async def test_a_layer_store_that_failed_is_opened_again_once_nobody_uses_it(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[dict[str, object]] = []

    async def shut() -> bool:
        return not opened

    async def reopen() -> None:
        opened.append(world.left())

    await engine.sandbox("N", "box").ensure_running()
    monkeypatch.setattr(world.layers, "is_shut", shut)
    monkeypatch.setattr(world.layers, "reopen", reopen)
    async with asyncio.timeout(5):
        while not opened:
            await asyncio.sleep(0.01)
    assert opened == [{}]
    await engine.sandbox("N", "box").ensure_running()
