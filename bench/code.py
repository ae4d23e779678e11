"""The code interpreter: a run in a warm context, and opening another one."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import atoll
from bench import floors
from bench.table import Report, Row, Samples, timed

GOAL = 0.005
"""Seconds of a warm run on an idle machine."""


async def measure(new: Callable[..., atoll.Sandbox], report: Report, runs: int) -> None:
    """Add the rows of the interpreter."""
    sandbox = new(instance_type="standard-1")
    await sandbox.run_code("1 + 1")

    async def run() -> None:
        await sandbox.run_code("1 + 1")

    async def open_context() -> None:
        made.append(await sandbox.create_code_context())

    made: list[atoll.CodeContext] = []
    goal = Samples([GOAL] * 3)
    report.add(Row("run_code, warm", await timed(run, runs, warmup=5), "5 ms", goal, 1.0))
    floor = await floors.fork_and_exec([sys.executable, "-c", "pass"], 20)
    report.add(
        Row("new code context", await timed(open_context, 20), "python3 -c pass", floor, 4.0)
    )
    await asyncio.gather(*(context.delete() for context in made))
    await _together(sandbox, report)


async def _together(sandbox: atoll.Sandbox, report: Report) -> None:
    async def ten() -> None:
        made = await asyncio.gather(*(sandbox.create_code_context() for _ in range(10)))
        pending.extend(context.delete() for context in made)

    pending: list[Awaitable[Any]] = []
    second = Samples([1.0] * 3)
    report.add(Row("10 code contexts at once", await timed(ten, 3), "1 s", second, 1.0))
    await asyncio.gather(*pending)
    await sandbox.destroy()
