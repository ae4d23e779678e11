import asyncio

import pytest

from atoll.network.gateway import turns
from atoll.network.gateway.turns import Turns


async def begun(found: Turns, count: int) -> tuple[list[int], list[asyncio.Task[None]]]:
    """Return who has a turn of *count* that want one and keep it, and all of them."""
    having: list[int] = []

    async def work(number: int) -> None:
        async with found.taken():
            having.append(number)
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(work(number)) for number in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    return having, tasks


async def test_few_are_worked_on_at_once_and_the_next_when_one_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 2)
    monkeypatch.setattr(turns, "LENGTH", 60)
    having, tasks = await begun(Turns(), 4)
    assert having == [0, 1]
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    await asyncio.sleep(0)
    assert having == [0, 1, 2]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_one_that_waits_for_its_server_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 1)
    monkeypatch.setattr(turns, "LENGTH", 0.01)
    found = Turns()
    having, tasks = await begun(found, 3)
    async with asyncio.timeout(10):
        while having != [0, 1, 2]:
            await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    monkeypatch.setattr(turns, "LENGTH", 60)
    having, tasks = await begun(found, 3)
    assert having == [0]  # nothing was given back twice
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
