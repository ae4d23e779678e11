"""What objects of a kind there are, without asking: a list, then a watch that goes on from it.

The API's server may be away for a while, and a watch may be cut or fall too far behind: it is
resumed from the last version seen, or begun anew with a list. Meanwhile the last known objects are
answered, so that nobody's call waits for the API.

Events and answers to own requests come in any order; the one with the higher version counts.
Versions are compared as numbers: those of etcd are, and the API promises it from 1.35 on.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import structlog

from atoll.runtime.kubernetes.api import Api, ApiError, Object

log = structlog.get_logger(__name__)

PAUSE = 1.0
"""Seconds before a broken watch is tried again."""

_GONE = 410

Heard = Callable[[str, Object | None], None]


def version(found: Object) -> int:
    """Return what tells older from newer states of an object."""
    return int(found["metadata"]["resourceVersion"])


def _nobody(name: str, found: Object | None) -> None:
    """What is told to whoever did not ask."""


class Mirror:
    """The objects of one collection that have a label.

    Args:
        cluster: the API.
        collection: path of it.
        selector: label selector.
        heard: told of each object that changed, or is gone.
    """

    def __init__(
        self, cluster: Api, collection: str, selector: str, heard: Heard = _nobody
    ) -> None:
        self._api, self._collection, self._selector = cluster, collection, selector
        self._heard = heard
        self._found: dict[str, Object] = {}
        self._last: dict[str, int] = {}
        self._changed = asyncio.Condition()
        self._version = ""
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Read the objects there are, and follow what happens to them.

        Raises:
            ApiError: they cannot be read.
        """
        await self.catch_up()
        self._task = asyncio.create_task(self._follow(), name=f"watch of {self._collection}")

    async def close(self) -> None:
        """Follow no more."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    def all(self) -> list[Object]:
        """Return the objects as last heard of."""
        return list(self._found.values())

    def get(self, name: str) -> Object | None:
        """Return an object as last heard of."""
        return self._found.get(name)

    async def until(
        self, name: str, wanted: Callable[[Object | None], bool], timeout: float | None
    ) -> Object | None:
        """Wait until the object *name* is as *wanted*; return it.

        Raises:
            TimeoutError: it was not within *timeout* seconds.
        """
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: wanted(self._found.get(name)))
            return self._found.get(name)

    async def ask(self, name: str) -> Object | None:
        """Return an object as it is now.

        Raises:
            ApiError: it cannot be read.
        """
        seen = self._last.get(name, 0)
        found = await self._api.get(f"{self._collection}/{name}")
        async with self._changed:
            if found:
                self.note(found)
            else:
                self.forget(name, seen)
            self._changed.notify_all()
        return self._found.get(name)

    def note(self, found: Object) -> None:
        """Take over what an answer of the API said, unless something later is known."""
        name = found["metadata"]["name"]
        if version(found) > self._last.get(name, 0):
            self._last[name] = version(found)
            self._found[name] = found
            self._heard(name, found)

    def forget(self, name: str, seen: int) -> None:
        """Take over that the object is gone, unless one later than version *seen* is known."""
        if name in self._found and seen >= self._last[name]:
            del self._found[name]
            self._heard(name, None)

    async def catch_up(self) -> None:
        """Take over all that there is now; it is known when this returns.

        Raises:
            ApiError: it cannot be read.
        """
        before = dict(self._last)
        query = {"labelSelector": self._selector}
        listed = await self._api.call("GET", self._collection, query=query)
        there = {found["metadata"]["name"] for found in listed["items"]}
        async with self._changed:
            for found in listed["items"]:
                self.note(found)
            for name in set(self._found) - there:
                self.forget(name, before.get(name, 0))
            self._version = self._version or listed["metadata"]["resourceVersion"]
            self._changed.notify_all()

    async def _follow(self) -> None:
        while True:
            try:
                seen = self._api.watch(self._collection, self._selector, self._version)
                async with aclosing(seen) as events:
                    async for kind, found in events:
                        await self._event(kind, found)
            except ApiError as error:
                log.info("watch broke", of=self._collection, reason=str(error), status=error.status)
                await asyncio.sleep(PAUSE)
                if error.status == _GONE:
                    await self._again()

    async def _again(self) -> None:
        self._version, old = "", self._version
        try:
            await self.catch_up()
        except ApiError as error:
            self._version = old
            log.warning("cannot be listed", of=self._collection, reason=str(error))

    async def _event(self, kind: str, found: Object) -> None:
        self._version = found["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        async with self._changed:
            if kind == "DELETED":
                self.forget(found["metadata"]["name"], version(found))
            else:
                self.note(found)
            self._changed.notify_all()
