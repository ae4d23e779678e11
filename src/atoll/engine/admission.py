"""How many sandboxes may run: per namespace and on this node. Checked before a start.

Counts are taken and given back on the event loop, so that no two starts see the same free place.
"""

import asyncio
from collections import Counter

from atoll.errors import MaxInstancesExceededError

RETRY_AFTER = 5.0
"""Seconds a refused caller is told to wait: about what a stop of another sandbox takes."""


class Admission:
    """Places for live sandboxes.

    Args:
        node_limit: places of the whole node.
    """

    def __init__(self, node_limit: int) -> None:
        self._node_limit = node_limit
        self._live: Counter[str] = Counter()
        self._freed = asyncio.Event()

    async def enter(self, namespace: str, limit: int | None, wait: float = 0.0) -> None:
        """Take a place, waiting up to *wait* seconds for one.

        Args:
            limit: places of the namespace; None: only the node's limit counts.

        Raises:
            MaxInstancesExceededError: all places are taken.
        """
        try:
            async with asyncio.timeout(wait):
                while self._full(namespace, limit):
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            raise self._refusal(namespace, limit) from None
        self._live[namespace] += 1

    def adopt(self, namespace: str) -> None:
        """Count a sandbox that runs already, whatever the limits say."""
        self._live[namespace] += 1

    def leave(self, namespace: str) -> None:
        """Give a place back."""
        self._live[namespace] -= 1
        self._freed.set()

    def _full(self, namespace: str, limit: int | None) -> bool:
        own_limit_reached = limit is not None and self._live[namespace] >= limit
        return own_limit_reached or self._live.total() >= self._node_limit

    def _refusal(self, namespace: str, limit: int | None) -> MaxInstancesExceededError:
        own = self._live[namespace]
        where = f"namespace {namespace!r}" if limit is not None and own >= limit else "this node"
        return MaxInstancesExceededError(
            f"{where} runs as many sandboxes as it may",
            context={
                "namespace": namespace,
                "running": own,
                "max_instances": limit,
                "node_running": self._live.total(),
                "node_max_instances": self._node_limit,
                "reason": "capacity",
            },
            suggestion="stop or destroy a sandbox, wait, or pass queue= to wait for a place",
            retry_after=RETRY_AFTER,
        )
