"""What Pods there are, without asking: a list, then a watch that goes on from it.

The API's server may be away for a while, and a watch may be cut or fall too far behind: it is
resumed from the last version seen, or begun anew with a list. Meanwhile the last known Pods are
answered, so that nobody's call waits for the API.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import structlog

from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import Api, ApiError, Object

log = structlog.get_logger(__name__)

PAUSE = 1.0
"""Seconds before a broken watch is tried again."""

_GONE = 410


class Pods:
    """The Pods of one namespace that have a label.

    Args:
        cluster: the API.
        namespace: of the cluster.
        selector: label selector.
    """

    def __init__(self, cluster: Api, namespace: str, selector: str) -> None:
        self._api, self._selector = cluster, selector
        self._collection = api.path(namespace, "pods")
        self._pods: dict[str, Object] = {}
        self._changed = asyncio.Condition()
        self._version = ""
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Read the Pods there are, and follow what happens to them.

        Raises:
            ApiError: they cannot be read.
        """
        await self._list()
        self._task = asyncio.create_task(self._follow(), name="watch of pods")

    async def close(self) -> None:
        """Follow no more."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    def all(self) -> list[Object]:
        """Return the Pods as last heard of."""
        return list(self._pods.values())

    def get(self, name: str) -> Object | None:
        """Return a Pod as last heard of."""
        return self._pods.get(name)

    async def until(
        self, name: str, wanted: Callable[[Object | None], bool], timeout: float | None
    ) -> Object | None:
        """Wait until the Pod *name* is as *wanted*; return it.

        Raises:
            TimeoutError: it was not within *timeout* seconds.
        """
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: wanted(self._pods.get(name)))
            return self._pods.get(name)

    async def _follow(self) -> None:
        while True:
            try:
                seen = self._api.watch(self._collection, self._selector, self._version)
                async with aclosing(seen) as events:
                    async for kind, pod in events:
                        await self._note(kind, pod)
            except ApiError as error:
                log.info("watch of pods broke", reason=str(error), status=error.status)
                await asyncio.sleep(PAUSE)
                if error.status == _GONE:
                    await self._again()

    async def _again(self) -> None:
        try:
            await self._list()
        except ApiError as error:
            log.warning("pods cannot be listed", reason=str(error))

    async def _list(self) -> None:
        found = await self._api.call(
            "GET", self._collection, query={"labelSelector": self._selector}
        )
        async with self._changed:
            self._pods = {pod["metadata"]["name"]: pod for pod in found["items"]}
            self._version = found["metadata"]["resourceVersion"]
            self._changed.notify_all()

    async def _note(self, kind: str, pod: Object) -> None:
        self._version = pod["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        async with self._changed:
            name = pod["metadata"]["name"]
            if kind == "DELETED":
                self._pods.pop(name, None)
            else:
                self._pods[name] = pod
            self._changed.notify_all()
