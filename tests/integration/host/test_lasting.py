"""Processes that outlive whoever started them."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll.host import lasting, process

SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)"]


Start = Callable[[list[str]], lasting.Running]


@pytest.fixture
def started() -> Iterator[Start]:
    """Start processes that end with the test, whether they are marked yet or not."""
    every: list[lasting.Running] = []

    def start(argv: list[str]) -> lasting.Running:
        with Path(os.devnull).open("w") as nowhere:
            pid = process.launch(argv, [], output=nowhere.fileno())
        every.append(lasting.identified(pid))
        return every[-1]

    yield start
    for one in every:
        lasting.kill(one)


@pytest.fixture
def mark() -> Iterator[str]:
    found = uuid.uuid4().hex
    yield found
    lasting.kill_marked(found)


async def test_one_is_told_from_another_of_its_number(mark: str, started: Start) -> None:
    found = started(lasting.marked(SLEEP, mark))
    other = lasting.Running(found.pid, found.started + "0")
    assert lasting.alive(found)
    assert not lasting.alive(other)
    lasting.kill(other)
    await lasting.ended(other)
    assert lasting.alive(found)


async def test_its_end_is_waited_for_and_nothing_is_left(mark: str, started: Start) -> None:
    found = started(lasting.marked(SLEEP, mark))
    end = asyncio.create_task(lasting.ended(found))
    await asyncio.sleep(0)
    assert not end.done()
    lasting.kill(found)
    async with asyncio.timeout(10):
        await end
    lasting.kill(found)
    await lasting.ended(found)
    assert not Path(f"/proc/{found.pid}").exists()


async def test_the_end_of_somebody_elses_child_is_waited_for(mark: str) -> None:
    script = (
        "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); input()"
    )
    words = lasting.marked([sys.executable, "-c", script, *SLEEP], mark)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        found = lasting.identified(int(parent.stdout.readline()))
        end = asyncio.create_task(lasting.ended(found))
        await asyncio.sleep(0)
        os.kill(found.pid, 9)
        async with asyncio.timeout(10):
            await end
        parent.communicate("\n")


async def test_what_nobody_wrote_down_is_found_by_its_mark(mark: str, started: Start) -> None:
    known, lost = (started(lasting.marked(SLEEP, mark)) for _ in range(2))
    other = started(lasting.marked(SLEEP, mark + "0"))
    async with asyncio.timeout(10):
        while len(lasting.of_engine(mark)) < 2:  # they are marked as soon as they run
            await asyncio.sleep(0.01)
    assert {one.pid for one in lasting.of_engine(mark)} == {known.pid, lost.pid}
    lasting.kill_marked(mark, but=frozenset({known.pid}))
    async with asyncio.timeout(10):
        await lasting.ended(lost)
    assert lasting.alive(known)
    assert lasting.alive(other)
    lasting.kill(other)
    await lasting.ended(other)


async def test_children_have_the_mark_too(mark: str, started: Start) -> None:
    found = started(lasting.marked(["sh", "-c", "sleep 1000 & wait"], mark))
    while len(lasting.of_engine(mark)) < 2:
        await asyncio.sleep(0.01)
    lasting.kill_marked(mark)
    await lasting.ended(found)
    while lasting.of_engine(mark):
        await asyncio.sleep(0.01)
