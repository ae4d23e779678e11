"""Notices at once that a container has ended by itself.

Its calls notice it by their connections. One without any would count as running until the next
call or the reaper came by. Whether it has ended is for the runtime to say; the pidfd of its first
process only says when to ask.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from atoll.engine.link.link import Endpoint
from atoll.errors import SandboxError
from atoll.host import waiting
from atoll.runtime.base import Elsewhere

log = structlog.get_logger(__name__)

PAUSES = (0.0, 0.05, 0.5, 2.0)
"""Seconds before each time the runtime is asked: what is left of the process may still be seen."""


class DeathWatch:
    """Watches the container behind *endpoint*.

    Args:
        check: asked once its first process has ended; returns whether that was the end of it.
    """

    def __init__(self, endpoint: Endpoint, check: Callable[[Endpoint], Awaitable[bool]]) -> None:
        self._endpoint, self._check = endpoint, check
        self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        """Watch no more."""
        self._task.cancel()

    async def _watch(self) -> None:
        try:
            if found := await self._endpoint.runtime.find(self._endpoint.host_ref):
                await self._ended(found.pid)
            for pause in PAUSES:
                await asyncio.sleep(pause)
                if await self._check(self._endpoint):
                    return
        except (SandboxError, OSError) as error:  # the reaper looks at it, too
            log.warning("container not watched", ref=self._endpoint.host_ref, reason=str(error))

    async def _ended(self, pid: int) -> None:
        runtime = self._endpoint.runtime
        if isinstance(runtime, Elsewhere):
            await runtime.ended(self._endpoint.host_ref)
        else:
            await waiting.ended(pid)
