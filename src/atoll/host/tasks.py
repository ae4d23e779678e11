"""Tasks that nobody waits for: the loop itself keeps no reference to them, so somebody else must."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """The tasks of one owner, each kept until it has ended."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run *work*, whether or not anybody waits for it."""
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def finish(self) -> None:
        """Return when those that run now have ended, however they end."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def close(self) -> None:
        """Cancel those that run, and return when they have ended."""
        for task in self._running:
            task.cancel()
        await self.finish()
