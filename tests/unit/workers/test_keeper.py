import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll.errors import EngineUnreachableError
from atoll.workers import keeper


class Engine:
    """A private engine as far as its keeper sees it: a socket that each run makes anew."""

    def __init__(self, socket: Path) -> None:
        self.socket, self.problem, self.asked = socket, "", 0
        self.run()

    def run(self) -> None:
        self.socket.unlink(missing_ok=True)
        self.socket.touch()

    async def url(self) -> str:
        return f"unix://{self.socket}"

    async def version(self) -> Any:
        self.asked += 1
        if self.problem:
            raise EngineUnreachableError(self.problem)
        return SimpleNamespace()

    async def asked_again(self) -> None:
        count = self.asked
        while self.asked < count + 2:
            await asyncio.sleep(0.001)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "engine.sock")


async def told(engine: Engine, *steps: Callable[[], None]) -> list[str]:
    """Return what the keeper says while *steps* are done."""
    said: list[str] = []
    task = asyncio.create_task(keeper.keep(engine, said.append, every=0.001))
    await engine.asked_again()
    for step in steps:
        step()
        await engine.asked_again()
    task.cancel()
    await asyncio.wait([task])
    return said


async def test_an_engine_that_goes_on_is_no_news(engine: Engine) -> None:
    assert await told(engine) == []


async def test_a_new_run_of_the_engine_is_told_once(engine: Engine) -> None:
    said = await told(engine, engine.run, lambda: None)
    assert len(said) == 1
    assert "runs again" in said[0]


async def test_a_lasting_problem_is_told_once_and_its_end_too(engine: Engine) -> None:
    def fail() -> None:
        engine.problem = "no socket"

    def mend() -> None:
        engine.problem = ""

    said = await told(engine, fail, lambda: None, mend)
    assert ["no socket" in said[0], "answers again" in said[1], len(said)] == [True, True, 2]
