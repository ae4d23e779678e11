import asyncio
from typing import Any

import pytest

from atoll.engine.engine import Engine
from atoll.engine.lifecycle import sequence
from atoll.engine.lifecycle.launch import Launch
from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.lifecycle.steps import STEPS, Step
from atoll.errors import NoSpaceError
from atoll.wire.sandbox import State
from integration.engine.conftest import Opener
from integration.engine.scripted import World

NAMES = [step.name for step in STEPS]


def stopping_after(name: str, what: Any) -> tuple[Step, ...]:
    """The steps of a start, with *what* done right after the step *name*."""

    def wrapped(step: Step) -> Step:
        async def make(life: Lifecycle, launch: Launch) -> None:
            await step.make(life, launch)
            await what()

        return step._replace(make=make) if step.name == name else step

    return tuple(map(wrapped, STEPS))


async def start(engine: Engine) -> None:
    await engine.sandbox("N", "box").ensure_running()


@pytest.mark.parametrize("name", NAMES)
async def test_a_start_that_fails_after_any_step_leaves_nothing(
    engine: Engine, world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise NoSpaceError("full")

    with monkeypatch.context() as patched:
        patched.setattr(sequence, "STEPS", stopping_after(name, fail))
        with pytest.raises(NoSpaceError) as caught:
            await start(engine)
    assert caught.value.context["step"] == name
    assert world.left() == {}
    assert await world.layers.list() == []
    await start(engine)


@pytest.mark.parametrize("name", NAMES)
async def test_an_engine_killed_after_any_step_leaves_nothing_the_next_one_does_not_remove(
    opener: Opener, world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = asyncio.Event()

    async def die() -> None:
        reached.set()
        await asyncio.Event().wait()

    async with opener() as killed:
        with monkeypatch.context() as patched:
            patched.setattr(sequence, "STEPS", stopping_after(name, die))
            starting = asyncio.create_task(start(killed))
            await reached.wait()
        async with opener() as engine:
            assert world.left() == {}
            assert (await engine.info("N", "box")).state is State.CREATED
            await start(engine)
            assert (await engine.info("N", "box")).generation == 2
        # The killed engine never gets to its own undo in reality; here it must be let go.
        monkeypatch.setattr(Lifecycle, "remove", _nothing)
        starting.cancel()
        await asyncio.wait([starting])
        for task in asyncio.all_tasks():
            if task.get_name().startswith("start "):
                task.cancel()


async def _nothing(life: Lifecycle, host_ref: str) -> bool:
    return True


async def test_an_undo_that_fails_does_not_keep_the_others_from_running(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start(engine)

    async def stuck(host_ref: str) -> None:
        raise OSError("busy")

    with monkeypatch.context() as patched:
        patched.setattr(world.roots, "unmount", stuck)
        await engine.sandbox("N", "box").stop()
    assert set(world.left()) == {"roots"}
    assert (await engine.info("N", "box")).state is State.STOPPED
