"""`host.tasks`: what goes on by itself."""

import asyncio

import pytest

from atoll.host.tasks import Tasks


async def test_a_task_that_nobody_holds_runs_to_its_end() -> None:
    tasks, ended = Tasks(), asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        ended.set()

    tasks.begin(work())
    assert len(tasks) == 1
    await asyncio.wait_for(ended.wait(), 5)
    await tasks.finish()
    assert len(tasks) == 0


async def test_who_waits_gets_what_it_returns() -> None:
    assert await Tasks().begin(asyncio.sleep(0, "told")) == "told"


async def test_closing_cancels_and_waits_for_what_they_still_do() -> None:
    tasks, begun, tidied = Tasks(), asyncio.Event(), False

    async def work() -> None:
        nonlocal tidied
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            tidied = True

    tasks.begin(work())
    await begun.wait()
    await tasks.close()
    assert tidied
    assert len(tasks) == 0


async def test_the_failure_of_one_does_not_keep_closing_from_the_others() -> None:
    tasks, waits = Tasks(), asyncio.Event()

    async def fails() -> None:
        raise ValueError("of its own")

    failed, waiting = tasks.begin(fails()), tasks.begin(waits.wait())
    await asyncio.sleep(0)
    await tasks.close()
    assert waiting.cancelled()
    with pytest.raises(ValueError, match="of its own"):
        await failed
