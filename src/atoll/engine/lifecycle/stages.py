"""Steps that need nothing of each other are done at the same time, and end together."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def grouped(steps: Iterable[T], beside: Callable[[T], bool]) -> list[list[T]]:
    """Return what is done at the same time, in order: a step that is *beside* joins the one before."""
    stages: list[list[T]] = []
    for step in steps:
        if stages and beside(step):
            stages[-1].append(step)
        else:
            stages.append([step])
    return stages


async def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it at once; all has ended when this returns or raises.

    When one fails the others are cancelled, and its error is raised alone.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
