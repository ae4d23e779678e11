"""How many sandboxes may run: per namespace, on this node, and as its memory and so on allow.

Checked before a start. Counts are taken and given back on the event loop, so that no two starts see
the same free place; a start under way counts for what it will need.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from atoll.engine.capacity.node import Free, Shortage, shortage
from atoll.errors import ContainerUnavailableError, MaxInstancesExceededError, SandboxError

RETRY_AFTER: Final = 5.0
"""Seconds a refused caller is told to wait: about what a stop of another sandbox takes."""

LOOK_AGAIN: Final = 0.5
"""Seconds between two looks at the node for those who wait: nothing tells when memory is freed."""


LOW: Final = 2
"""Reserves of memory below which the node counts as low on it; starts are refused below one."""


class Admission:
    """Places for live sandboxes.

    Args:
        node_limit: places of the whole node.
        kept: what must be left of the node.
        free: returns what is left of it.
    """

    def __init__(self, node_limit: int, kept: Free, free: Callable[[], Free]) -> None:
        self._node_limit = node_limit
        self._kept = kept
        self.free = free
        self.low_memory = LOW * kept.memory
        self._live: Counter[str] = Counter()
        self._starting = 0
        self._changed = asyncio.Event()

    async def enter(
        self, namespace: str, limit: int | None, wait: float = 0.0, *, new: bool = False
    ) -> None:
        """Take a place for a start, waiting up to *wait* seconds for one.

        Args:
            limit: places of the namespace; None: only the node's limit counts.
            new: whether it has no files yet.

        Raises:
            MaxInstancesExceededError: all places are taken.
            ContainerUnavailableError: the node lacks memory, processes or disk.
        """
        try:
            async with asyncio.timeout(wait):
                while refusal := self._refusal(namespace, limit, new=new):
                    self._changed.clear()
                    await _set_or_later(self._changed)
        except TimeoutError:
            if refusal := self._refusal(namespace, limit, new=new):
                raise refusal from None
        self._live[namespace] += 1
        self._starting += 1

    def started(self) -> None:
        """A start that entered has ended, one way or the other."""
        self._starting -= 1
        self._changed.set()

    def adopt(self, namespace: str) -> None:
        """Count a sandbox that runs already, whatever the limits say."""
        self._live[namespace] += 1

    def leave(self, namespace: str) -> None:
        """Give a place back."""
        self._live[namespace] -= 1
        self._changed.set()

    def short_for(self, starts: int) -> Shortage | None:
        """Return what the node lacks for so many more starts of new sandboxes."""
        return shortage(self.free(), self._kept, self._starting + starts, new=True)

    def taken(self, namespace: str, limit: int) -> SandboxError:
        """Return what a caller is told when other engines have the last places of a namespace."""
        return self._full(f"namespace {namespace!r}", namespace, limit)

    def _refusal(self, namespace: str, limit: int | None, *, new: bool) -> SandboxError | None:
        own = self._live[namespace]
        if limit is not None and own >= limit:
            return self._full(f"namespace {namespace!r}", namespace, limit)
        if self._live.total() >= self._node_limit:
            return self._full("this node", namespace, limit)
        lacks = shortage(self.free(), self._kept, self._starting + 1, new=new)
        return _lacking(lacks) if lacks else None

    def _full(self, where: str, namespace: str, limit: int | None) -> SandboxError:
        return MaxInstancesExceededError(
            f"{where} runs as many sandboxes as it may",
            context={
                "namespace": namespace,
                "running": self._live[namespace],
                "max_instances": limit,
                "node_running": self._live.total(),
                "node_max_instances": self._node_limit,
                "reason": "capacity",
            },
            suggestion="stop or destroy a sandbox, wait, or pass queue= to wait for a place",
            retry_after=RETRY_AFTER,
        )


async def _set_or_later(event: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait([waiting], timeout=LOOK_AGAIN)
    waiting.cancel()


def _lacking(lacks: Shortage) -> SandboxError:
    return ContainerUnavailableError(
        f"this node has too little {_WORDS[lacks.resource]} left for another sandbox",
        context={"reason": "capacity", **lacks._asdict()},
        suggestion="stop or destroy sandboxes, wait, or pass queue= to wait for room",
        retry_after=RETRY_AFTER,
    )


_WORDS: Final = {"memory": "memory", "pids": "room for processes", "disk": "disk"}
