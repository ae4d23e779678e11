"""Snapshots of layers: what a layer held at one moment, kept until it is deleted.

A snapshot is never changed. New layers begin as one; they share its blocks and nothing writable.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from atoll.errors import from_os_error
from atoll.storage.refusals import FULL, check_id, no_capacity, shut, typed

T = TypeVar("T")


class _Snapshots(Protocol):
    folder: Path

    def sweep(self) -> None: ...
    async def take(self, layer_id: str, snapshot_id: str) -> None: ...
    async def clone(self, snapshot_id: str, layer_id: str, size: int) -> None: ...
    async def attach(self, snapshot_id: str) -> Path: ...
    def usage(self, snapshot_id: str) -> int: ...
    async def delete(self, snapshot_id: str) -> None: ...
    def exists(self, snapshot_id: str) -> bool: ...
    def list(self) -> list[str]: ...


class Snapshots:
    """Takes, finds and removes snapshots. All calls may be repeated.

    Args:
        kind: how they are kept.
        mounted: held by every call: meanwhile the store is mounted.
        admit: refuses what takes space when there is none.
        failed: tells whether the store takes no change: it shut itself, or is not mounted yet.

    Every call raises `ContainerUnavailableError` while the store is shut.
    """

    def __init__(
        self,
        kind: _Snapshots,
        mounted: asyncio.Lock,
        admit: Callable[[], None],
        failed: Callable[[], Awaitable[bool]],
    ) -> None:
        self._kind = kind
        self._mounted = mounted
        self._admit = admit
        self._failed = failed

    async def open(self) -> None:
        """Remove what an engine that was killed had not finished."""
        await asyncio.to_thread(self._kind.sweep)

    async def take(self, layer_id: str, snapshot_id: str) -> None:
        """Keep the layer as it is now. Whoever writes to it is stopped or frozen meanwhile.

        Raises:
            FileNotFoundError: there is no such layer.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        check_id(layer_id)
        check_id(snapshot_id)
        self._admit()
        await self._run(self._kind.take(layer_id, snapshot_id))

    async def clone(self, snapshot_id: str, layer_id: str, size_bytes: int) -> None:
        """Make a layer that begins as the snapshot.

        Args:
            size_bytes: its limit; an ext4 layer keeps the size of the one the snapshot is of.

        Raises:
            FileNotFoundError: there is no such snapshot.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        check_id(layer_id)
        self._admit()
        await self.attach(snapshot_id)
        await self._run(self._kind.clone(snapshot_id, layer_id, size_bytes))

    async def attach(self, snapshot_id: str) -> Path:
        """Return the folder that holds ``upper`` of the snapshot, read-only.

        Raises:
            FileNotFoundError: there is no such snapshot.
        """
        check_id(snapshot_id)
        return await self._run(self._attached(snapshot_id))

    async def _attached(self, snapshot_id: str) -> Path:
        if not self._kind.exists(snapshot_id):
            raise from_os_error(OSError(errno.ENOENT, "no such snapshot"), snapshot_id)
        return await self._kind.attach(snapshot_id)

    async def usage(self, snapshot_id: str) -> int:
        """Return the bytes the snapshot refers to, shared ones included."""
        check_id(snapshot_id)
        return await self._run(asyncio.to_thread(self._kind.usage, snapshot_id))

    async def delete(self, snapshot_id: str) -> None:
        """Remove the snapshot. Layers that began as it keep what they have."""
        check_id(snapshot_id)
        await self._run(self._kind.delete(snapshot_id))

    async def list(self) -> list[str]:
        """Return the ids of all snapshots."""
        async with self._mounted:
            return await asyncio.to_thread(self._kind.list)

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._mounted:
            try:
                return await work
            except OSError as error:
                if await self._failed():
                    raise shut() from error
                if error.errno in FULL:
                    raise no_capacity(self._kind.folder) from error
                raise typed(error, self._kind.folder) from error
