"""Which requests of a sandbox are worked on now: few of each, so that every sandbox has its turn.

The gateway is one loop. What thousands of connections of one sandbox have it do in a round, those of all
others wait for: seconds, with 4,000 of them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

AT_ONCE = 64
"""Requests of one sandbox that are worked on. Each takes about a millisecond of a processor."""

LENGTH = 0.05
"""Seconds after which the next one begins, whatever the server or the handler takes."""


class Turns:
    """Of one sandbox."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a turn and hold it inside the block, but for `LENGTH` at most."""
        await self._free.acquire()
        turn = _Turn(self._free)
        timer = asyncio.get_running_loop().call_later(LENGTH, turn.end)
        try:
            yield
        finally:
            timer.cancel()
            turn.end()


class _Turn:
    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._over = False

    def end(self) -> None:
        if not self._over:
            self._over = True
            self._free.release()
