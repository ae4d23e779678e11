"""The store of replicas: what an engine keeps in SQLite on one machine, in objects of the cluster.

Each replica has a copy of all of it in memory, kept by a watch: reads ask nobody. A write is tried
on the copy; the objects that it changes are sent with the versions it saw, and its caller hears of
success when the cluster has them. If another replica was quicker, the copy catches up and the write
is tried again on what is there now: it decides anew, as after any compare-and-set that failed.

A write that changes several objects is not one transaction of the cluster. It sends what it adds
before what it removes, and is tried again as a whole; who crashes in between leaves too much, never
too little.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

import msgspec

from atoll.engine.cluster import documents, places
from atoll.engine.cluster.documents import LABELS, PLURALS, SANDBOX, Key, Object, Rows
from atoll.engine.cluster.rows import Copy, Tried
from atoll.engine.store.record import Record
from atoll.engine.store.store import Store
from atoll.errors import ContainerNotReadyError
from atoll.runtime.kubernetes import api, status
from atoll.runtime.kubernetes.api import Api, ApiError
from atoll.runtime.kubernetes.mirror import Mirror

T = TypeVar("T")

TRIES = 30
"""How often a write is tried until somebody has to ask again: 50 callers at once need a few."""


class ClusterStore(Store):
    """Implements `Store` on custom resources.

    Args:
        cluster: the API.
        namespace: of the cluster.
        actor: which replica this is.
    """

    def __init__(self, cluster: Api, namespace: str, actor: str) -> None:
        super().__init__(Path("/nonexistent"))
        self.actor = actor
        self.foreign: asyncio.Queue[Key] = asyncio.Queue()
        """What was changed, perhaps by another replica."""

        self._api, self._copy = cluster, Copy()
        self._paths = {
            kind: api.path(namespace, plural, group=f"apis/{documents.GROUP}")
            for kind, plural in PLURALS.items()
        }
        selector = ",".join(f"{name}={value}" for name, value in LABELS.items())
        self._mirrors = {
            kind: Mirror(cluster, path, selector, self._heard) for kind, path in self._paths.items()
        }
        self._names: dict[str, Key] = {}
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def open(self) -> Self:
        """Read everything, and follow what others write.

        Raises:
            ApiError: it cannot be read.
        """
        for mirror in self._mirrors.values():
            await mirror.open()
        return self

    async def close(self) -> None:
        """Follow no more."""
        for mirror in self._mirrors.values():
            await mirror.close()
        self._copy.close()

    def refuse_full(self) -> None:
        """Nothing: what limits the cluster's store is asked with every write."""

    async def read(self, sql: str, values: Any) -> list[Any]:
        """Return the rows of a query."""
        return self._copy.read(sql, values)

    async def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run *job*, perhaps several times; return its result when the cluster has what it wrote.

        Raises:
            ContainerUnavailableError: the cluster's API is not there, or refuses.
            ContainerNotReadyError: others were quicker every time.
            NotSupportedByRuntimeError: it wrote what replicas cannot share.
        """
        # A cancelled caller does not take the write back, nor leave half of it.
        value: T = await asyncio.shield(asyncio.create_task(self._write(job)))
        return value

    async def _write(self, job: Callable[[sqlite3.Connection], Any]) -> Any:
        for _ in range(TRIES):
            tried = self._copy.attempt(job)
            async with AsyncExitStack() as stack:
                for key in sorted(tried.changed):
                    await stack.enter_async_context(self._lock(key))
                again = self._copy.attempt(job)
                if set(again.changed) <= set(tried.changed) and await self._saved(again):
                    return again.value
        raise ContainerNotReadyError(
            "other replicas change the same", context={"reason": "conflict"}, retry_after=0.5
        )

    def _lock(self, key: Key) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def _saved(self, tried: Tried) -> bool:
        """Send all changes; return whether nobody else was quicker."""
        for key, rows in _removals_last(tried.changed):
            try:
                await self._send(key, rows)
            except ApiError as error:
                if not (error.conflict or error.missing):
                    raise status.unavailable(error) from error
                await self._ask(key)
                return False
        return True

    async def _send(self, key: Key, rows: Rows) -> None:
        collection, mirror = self._paths[key.kind], self._mirrors[key.kind]
        seen = mirror.get(key.name)
        path, body = f"{collection}/{key.name}", documents.packed(key, rows)
        if seen is None and rows:
            mirror.note(await self._api.create(collection, body))
        elif seen and rows:
            body["metadata"]["resourceVersion"] = seen["metadata"]["resourceVersion"]
            mirror.note(await self._api.call("PUT", path, body=body))
        elif seen:
            about = seen["metadata"]
            await self._api.delete(path, uid=about["uid"], version=about["resourceVersion"])
            mirror.forget(key.name, int(about["resourceVersion"]))

    async def _ask(self, key: Key) -> None:
        try:
            await self._mirrors[key.kind].ask(key.name)
        except ApiError as error:
            raise status.unavailable(error) from error

    async def fresh(self, namespace: str, id: str) -> None:
        """See `Directory.fresh`."""
        await self._ask(Key("sandbox", (namespace, id)))

    async def catch_up(self) -> None:
        """See `Store.catch_up`."""
        try:
            await self._mirrors[SANDBOX].catch_up()
        except ApiError as error:
            raise status.unavailable(error) from error

    async def place(self, record: Record, limit: int) -> bool:
        """See `Store.place`."""
        if await self.write(places.taking(record, limit)):
            return True
        held = self._copy.look(lambda rows: places.over(rows, record.namespace))
        await self.catch_up()  # a place that is known by now has a start that is known after this
        now = self._copy.look(lambda rows: places.over(rows, record.namespace))
        ended = [one for one in held if one in now]
        await self.write(places.freeing(record.namespace, ended))
        return await self.write(places.taking(record, limit))

    def _heard(self, name: str, found: Object | None) -> None:
        """An object is another one now: take it over into the copy."""
        if found:
            key = self._names[name] = documents.key_of(found)
            if key.topic not in documents.TOPICS:  # a newer engine's
                return
            self._copy.put(key, documents.unpacked(found))
        else:
            key = self._names.pop(name)
            self._copy.put(key, {})
        self.foreign.put_nowait(key)
        for (body,) in self._bodies(key):
            self._publish(msgspec.json.decode(body, type=Record))

    def _bodies(self, key: Key) -> list[Any]:
        if key.topic != "sandbox":
            return []
        return self._copy.read(
            "SELECT body FROM sandboxes WHERE namespace = ? AND id = ?", key.parts
        )


def _removals_last(changed: dict[Key, Rows]) -> Iterable[tuple[Key, Rows]]:
    return sorted(changed.items(), key=lambda item: not item[1])
