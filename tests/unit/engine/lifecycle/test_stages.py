import asyncio

import pytest

from atoll.engine.lifecycle.stages import grouped, together


def test_a_step_joins_the_one_before_it() -> None:
    assert grouped(["a", "b+", "c", "d+", "e+"], lambda step: "+" in step) == [
        ["a", "b+"],
        ["c", "d+", "e+"],
    ]
    assert grouped(["a+"], lambda _: True) == [["a+"]]


async def test_work_is_done_at_the_same_time() -> None:
    met = asyncio.Barrier(3)

    async def meet() -> None:
        await met.wait()

    async with asyncio.timeout(2):
        await together(meet() for _ in range(3))


async def test_when_one_fails_the_others_have_ended_before_it_is_told() -> None:
    """What is undone next must not race with them."""
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)
            ended.append("slow")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await together([slow(), fail()])
    assert ended == ["slow"]


async def test_a_cancelled_caller_leaves_nothing_running() -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("slow")

    task = asyncio.create_task(together([slow(), slow()]))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["slow", "slow"]
