import asyncio
from typing import Any

import pytest

from atoll.engine.engine import Engine
from atoll.errors import ContainerUnavailableError, MethodFailedError, SandboxError
from atoll.wire.objects import Delivery
from atoll.wire.sandbox import State
from integration.engine.conftest import Opener
from integration.engine.objects.worker import Worker, until
from integration.engine.scripted import World


async def test_each_start_and_stop_is_told_once_and_in_order(engine: Engine) -> None:
    async with Worker(engine) as worker:
        box = engine.sandbox("N", "box")
        for _ in range(2):
            await box.ensure_running()
            await box.stop()
        await box.destroy()
        await until(lambda: len(worker.seen) == 5)
    assert worker.told == ["on_start", "on_stop", "on_start", "on_stop", "forget"]
    assert len({delivery.object for delivery in worker.seen}) == 1


async def test_the_next_life_of_an_id_is_another_object(engine: Engine) -> None:
    async with Worker(engine) as worker:
        box = engine.sandbox("N", "box")
        for _ in range(2):
            await box.ensure_running()
            await box.destroy()
        await until(lambda: len(worker.seen) == 6)
    assert worker.told == ["on_start", "on_stop", "forget"] * 2
    assert len({delivery.object for delivery in worker.seen}) == 2


async def test_what_the_worker_missed_it_is_told_when_it_comes(engine: Engine) -> None:
    box = engine.sandbox("N", "box")
    async with Worker(engine) as worker:
        await box.ensure_running()
    await box.stop()
    await box.ensure_running()
    async with Worker(engine) as worker:
        await until(lambda: len(worker.seen) == 2)
    assert worker.told == ["on_stop", "on_start"]


async def test_hooks_outlive_the_engine(opener: Opener, world: World) -> None:
    async with opener() as engine:
        async with Worker(engine):
            await engine.sandbox("N", "box").ensure_running()
        engine.objects.deliveries._grace = 0
        await engine.sandbox("N", "box").stop()
        await engine.sandbox("N", "gone").ensure_running()
        await engine.sandbox("N", "gone").destroy()
    async with opener() as engine, Worker(engine) as worker:
        await until(lambda: len(worker.seen) == 2)
        assert sorted(worker.told) == ["forget", "on_stop"]


async def test_a_hook_that_nobody_answered_is_told_again_to_the_next_worker(
    engine: Engine,
) -> None:
    async with Worker(engine, lambda _: asyncio.sleep(60)) as stuck:
        task = asyncio.create_task(engine.sandbox("N", "box").ensure_running())
        await until(lambda: stuck.seen)
    async with Worker(engine) as worker:
        await task
        await until(lambda: worker.seen)
    assert [delivery.key for delivery in worker.seen] == [stuck.seen[0].key]


async def test_a_hook_that_raises_is_reported_and_wedges_nothing(engine: Engine) -> None:
    def does(delivery: Delivery) -> None:
        if delivery.method != "on_error":
            raise MethodFailedError("boom")

    async with Worker(engine, does) as worker:
        box = engine.sandbox("N", "box")
        await box.ensure_running()
        await box.stop()
        await until(lambda: len(worker.seen) == 4)
        await box.ensure_running()
        await box.destroy()
    errors = [delivery.args for delivery in worker.seen if delivery.method == "on_error"]
    assert errors[0][0]["message"] == "boom"


async def test_a_start_that_fails_is_told(engine: Engine, world: World) -> None:
    world.runtime.failures["start"] = ContainerUnavailableError("no room")
    async with Worker(engine) as worker:
        with pytest.raises(ContainerUnavailableError):
            await engine.sandbox("N", "box").ensure_running()
        await until(lambda: worker.seen)
    assert worker.told == ["on_error"]
    assert worker.seen[0].args[0]["code"] == "CONTAINER_UNAVAILABLE"


async def test_a_failed_hook_of_errors_is_not_reported_to_itself(engine: Engine) -> None:
    def does(_: Delivery) -> None:
        raise MethodFailedError("boom")

    async with Worker(engine, does) as worker:
        await engine.sandbox("N", "box").ensure_running()
        await until(lambda: len(worker.seen) == 2)
        await asyncio.sleep(0.05)
    assert worker.told == ["on_start", "on_error"]


async def test_an_idle_sandbox_is_the_decision_of_its_class(engine: Engine) -> None:
    box = engine.sandbox("N", "box")

    async def stops(_: Delivery) -> None:
        await box.stop()

    async with Worker(engine, hooks=("on_activity_expired",)) as worker:
        await box.ensure_running()
        assert await engine.objects.expired(box)
        assert worker.told == ["on_activity_expired"]
        assert box.is_in(State.RUNNING)
    async with Worker(engine, stops, hooks=("on_activity_expired",)):
        assert await engine.objects.expired(box)
        assert box.is_in(State.STOPPED)
    assert not await engine.objects.expired(box)


@pytest.mark.parametrize("does", [SandboxError("no"), None])
async def test_a_worker_that_fails_keeps_no_sandbox_awake(engine: Engine, does: Any) -> None:
    engine.objects.hooks._timeout = 0.05

    async def answer(_: Delivery) -> None:
        if does is not None:
            raise does
        await asyncio.sleep(60)

    async with Worker(engine, answer, hooks=("on_activity_expired",)):
        box = engine.sandbox("N", "box")
        await box.ensure_running()
        assert not await engine.objects.expired(box)
        await box.destroy()
