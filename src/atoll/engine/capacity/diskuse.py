"""How much of its disk a sandbox takes, for callers who must not wait for the disk.

A store that is busy (it is opened again, its host's disk hangs) would keep all who only look at a
sandbox waiting, each with a thread. Here one question is asked at a time of each layer, and who asks
hears nothing when the answer is late.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from atoll.errors import SandboxError

PATIENCE = 0.5
"""Seconds a caller waits. Measured: a btrfs layer's figure takes 0.1 ms."""


class DiskUse:
    """Figures of layers.

    Args:
        measure: returns the bytes that a layer takes.
    """

    def __init__(self, measure: Callable[[str], Awaitable[int]]) -> None:
        self._measure = measure
        self._asking: dict[str, asyncio.Task[int | None]] = {}

    async def of(self, layer_id: str) -> int | None:
        """Return the bytes a layer takes; None where that is not known now."""
        task = self._asking.get(layer_id)
        if task is None:
            task = self._asking[layer_id] = asyncio.create_task(self._measured(layer_id))
            task.add_done_callback(lambda _: self._asking.pop(layer_id, None))
        await asyncio.wait({task}, timeout=PATIENCE)
        return task.result() if task.done() else None

    async def _measured(self, layer_id: str) -> int | None:
        with suppress(OSError, SandboxError):  # it has none yet, or no more
            return await self._measure(layer_id)
        return None
