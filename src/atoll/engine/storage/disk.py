"""What the disk is used for, and what of it nobody needs any more.

What can be collected is collected by itself, with the other timers; here it is told before, or done
now. What is being made is never told: it has no row yet.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

from atoll.engine.leftovers import reaper
from atoll.engine.shared import Shared
from atoll.engine.storage.backups import Backups
from atoll.engine.storage.snapshots import Snapshots
from atoll.engine.store import record as rules
from atoll.engine.store.shelf import MAX_PAGE, Shelf
from atoll.errors import SandboxError
from atoll.wire import ids
from atoll.wire.disk import Collectable, Collected, DiskEntry, DiskUsage, StoreSpace

T = TypeVar("T")

MAX_ENTRIES = 1_000
"""Most entries that one answer tells one by one."""

EXPIRED, ORPHANED, CACHED = "expired", "orphaned", "cached"
UNPACKED = "unpacked"
"""Kind of what is kept of backups that were put back."""


class Disk:
    """Accounts of all that the engine keeps.

    Args:
        shared: what all sandboxes of the engine work with.
        snapshots: all snapshots.
        backups: all backups.
    """

    def __init__(self, shared: Shared, snapshots: Snapshots, backups: Backups) -> None:
        self._shared = shared
        self._snapshots = snapshots
        self._backups = backups
        self._layers = shared.lifecycle.parts.layers
        self._kept = self._layers.snapshots

    async def usage(self, namespace: str, limit: int) -> DiskUsage:
        """Return the largest entries of a namespace and the sums over all of them."""
        ids.check_namespace(namespace)
        sizes, counts, found = Counter[str](), Counter[str](), []
        async for entry in self._entries(namespace):
            sizes[entry.kind] += entry.size
            counts[entry.kind] += 1
            found.append(entry)
        largest = heapq.nlargest(max(1, min(limit, MAX_ENTRIES)), found, key=lambda e: e.size)
        return DiskUsage(entries=largest, sizes=sizes, counts=counts)

    async def _entries(self, namespace: str) -> AsyncIterator[DiskEntry]:
        async for entry in self._sandboxes(namespace):
            yield entry
        async for kept in _all(self._snapshots.shelf, namespace):
            one = kept.snapshot
            yield DiskEntry(kind="snapshot", id=one.id, size=one.size, expires_at=one.expires_at)
        async for backup in _all(self._backups.shelf, namespace):
            yield DiskEntry(
                kind="backup" if backup.bucket is None else "bucket",
                id=backup.id,
                size=backup.size,
                expires_at=backup.expires_at,
            )
        for id, size in (await self._backups.unpacked.all()).items():
            of = await self._backups.shelf.find(id)
            if of and of.namespace == namespace:
                yield DiskEntry(kind=UNPACKED, id=id, size=size, expires_at=of.expires_at)
        async for volume in self._shared.volumes.all(namespace):
            yield DiskEntry(kind="volume", id=volume.name, size=volume.used, limit=volume.size)

    async def _sandboxes(self, namespace: str) -> AsyncIterator[DiskEntry]:
        cursor: str | None = None
        while True:
            page = await self._shared.store.list(namespace, cursor=cursor, limit=MAX_PAGE)
            for record in page.records:
                force = record.in_force
                if force:
                    yield DiskEntry(
                        kind="sandbox",
                        id=record.id,
                        size=await self._used(record.layer_id),
                        limit=force.limits.disk,
                        expires_at=record.expires_at,
                    )
            if (cursor := page.cursor) is None:
                return

    async def _used(self, layer_id: str) -> int:
        try:
            return await self._layers.usage(layer_id)
        except (OSError, SandboxError):  # it went meanwhile
            return 0

    async def collectable(self) -> list[Collectable]:
        """Return what nobody needs any more, in all namespaces."""
        snapshots = await self._snapshots.orphans()
        layers = await reaper.orphaned_layers(self._shared.lifecycle, self._shared.store)
        return [
            *[item async for item in self._expired()],
            *[_orphan("snapshot", id, await self._kept.usage(id)) for id in snapshots],
            *[_orphan(kind, id, 0) async for kind, id in self._backups.orphans()],
            *[_orphan("layer", id, await self._used(id)) for id in layers],
            *[
                Collectable(kind=UNPACKED, id=id, reason=CACHED, size=size)
                for id, size in (await self._backups.unpacked.all()).items()
            ],
        ]

    async def _expired(self) -> AsyncIterator[Collectable]:
        for id in _ended(await self._snapshots.shelf.ends()):
            if kept := await self._snapshots.shelf.find(id):
                yield _expired("snapshot", id, kept.snapshot.size, kept.snapshot.namespace)
        for id in _ended(await self._backups.shelf.ends()):
            if backup := await self._backups.shelf.find(id):
                yield _expired("backup", id, backup.size, backup.namespace)

    async def collect(self, *, dry_run: bool) -> Collected:
        """Return what can be collected; unless *dry_run*, after it was."""
        found, shrunk = await self.collectable(), 0
        if not dry_run:
            await asyncio.gather(self._snapshots.tidy(), self._backups.tidy())
            await self._backups.unpacked.clear()
            await reaper.sweep(self._shared.lifecycle, self._shared.store)
            shrunk = await self._layers.trim()
        return Collected(
            items=found,
            size=sum(item.size for item in found),
            dry_run=dry_run,
            shrunk=shrunk,
            store=await self._store(),
        )

    async def _store(self) -> StoreSpace | None:
        space = await self._layers.space()
        return space and StoreSpace(size=space.size, taken=space.taken, used=space.used)


def _ended(rows: Mapping[str, float | None]) -> list[str]:
    now = rules.now().timestamp()
    return [id for id, ends in rows.items() if ends is not None and ends <= now]


def _orphan(kind: str, id: str, size: int) -> Collectable:
    return Collectable(kind=kind, id=id, reason=ORPHANED, size=size)


def _expired(kind: str, id: str, size: int, namespace: str) -> Collectable:
    return Collectable(kind=kind, id=id, reason=EXPIRED, size=size, namespace=namespace)


async def _all(shelf: Shelf[T], namespace: str) -> AsyncIterator[T]:
    cursor: str | None = None
    while True:
        page = await shelf.page(namespace, sandbox=None, cursor=cursor, limit=MAX_PAGE)
        for entry in page.entries:
            yield entry
        if (cursor := page.cursor) is None:
            return
