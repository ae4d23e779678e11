"""Where archives of backups are kept: one file each below the state directory.

An archive appears complete and durable or not at all. Its name is its id, chosen by the engine.
`Archives` is what any such place can do; `bucket_vault` is the other one.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from atoll.errors import NoSpaceError, from_os_error
from atoll.host import durable
from atoll.storage import capacity

_DRAFT = ".new-"
_CHECK_EVERY = 64 << 20
"""Bytes written between two looks at what the disk has left."""


Recorded = Callable[[], Awaitable[Collection[str]]]
"""Tells the ids of all archives that the store has a row of."""


class Reading(Protocol):
    """An archive that is being read, by blocking calls."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most *size* bytes; none at the end."""


class Writing(Protocol):
    """An archive that is being written: `write`…, `finish`, `publish`, `keep`."""

    size: int

    @property
    def sha256(self) -> str:
        """Digest of what was written so far, in hexadecimal."""

    async def write(self, data: bytes) -> None:
        """Append *data*."""

    async def finish(self) -> None:
        """Have everything stored."""

    async def publish(self, account: bytes) -> None:
        """Have it appear; *account* says in JSON what it is."""

    def keep(self) -> None:
        """Say that the store has a row of it: it stays."""


class Archives(Protocol):
    """A place of archives."""

    @property
    def threads(self) -> Executor | None:
        """Where blocking reads run; None: where all others do."""

    def writing(self, id: str) -> AbstractAsyncContextManager[Writing]:
        """Write an archive; nothing of it stays when the block ends and it was not kept."""

    def opened(self, id: str) -> AbstractAsyncContextManager[Reading]:
        """Read an archive."""

    def deleting(self, id: str) -> AbstractAsyncContextManager[None]:
        """Remove an archive after the block, in which its row goes."""

    async def delete(self, id: str) -> None:
        """Remove an archive. Idempotent."""

    async def orphans(self, recorded: Recorded) -> set[str]:
        """Return what is stored, has no row, and is not being made."""


class VaultWriter:
    """An archive that is being written to a file.

    Args:
        draft: its file until it is published.
        path: its file then.
        reserve: bytes of the disk that stay free.
    """

    def __init__(self, draft: Path, path: Path, reserve: int) -> None:
        self._draft = draft
        self._path = path
        self._folder = path.parent
        self._reserve = reserve
        self._file = draft.open("xb")
        self._unchecked = 0
        self._hash = hashlib.sha256()
        self.size = 0
        self.kept = False

    @property
    def sha256(self) -> str:
        """Digest of what was written so far, in hexadecimal."""
        return self._hash.hexdigest()

    async def write(self, data: bytes) -> None:
        """Append *data*.

        Raises:
            NoSpaceError: the disk has no more than its reserve left.
        """
        await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        self._unchecked += len(data)
        if self._unchecked >= _CHECK_EVERY:
            self._unchecked = 0
            refuse_full(self._folder, self._reserve)
        self._hash.update(data)
        try:
            self._file.write(data)
        except OSError as error:
            raise from_os_error(error, str(self._folder)) from error
        self.size += len(data)

    async def finish(self) -> None:
        """See `Writing.finish`."""
        await asyncio.to_thread(_sync, self._file)

    async def publish(self, account: bytes) -> None:  # noqa: ARG002 - its row says what it is
        """See `Writing.publish`."""
        await asyncio.to_thread(self._publish)

    def _publish(self) -> None:
        self._draft.rename(self._path)
        durable.sync(self._folder)

    def keep(self) -> None:
        """See `Writing.keep`."""
        self.kept = True

    def close(self) -> None:
        """Close the file, and remove it unless it is kept."""
        self._file.close()
        self._draft.unlink(missing_ok=True)
        if not self.kept:
            self._path.unlink(missing_ok=True)


class Vault:
    """Keeps archives in a folder.

    Args:
        folder: made when it is missing; nobody else's.
        reserve: bytes that stay free on its disk.
    """

    threads: Executor | None = None

    def __init__(self, folder: Path, reserve: int) -> None:
        self._folder = folder
        self._reserve = reserve
        self._making: set[str] = set()  # no row tells of these yet

    def open(self) -> None:
        """Make the folder; remove what an engine that was killed had not finished."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for draft in self._folder.glob(f"{_DRAFT}*"):
            draft.unlink()

    @asynccontextmanager
    async def writing(self, id: str) -> AsyncIterator[VaultWriter]:
        """See `Archives.writing`.

        Raises:
            NoSpaceError: the disk is full.
        """
        refuse_full(self._folder, self._reserve)
        archive = VaultWriter(self._folder / (_DRAFT + id), self._folder / id, self._reserve)
        self._making.add(id)
        try:
            yield archive
        finally:
            archive.close()
            self._making.discard(id)

    @asynccontextmanager
    async def opened(self, id: str) -> AsyncIterator[BinaryIO]:
        """See `Archives.opened`.

        Raises:
            FileNotFoundError: there is none.
        """
        try:
            file = (self._folder / id).open("rb", buffering=0)
        except OSError as error:
            raise from_os_error(error, id) from error
        with file:
            yield file

    @asynccontextmanager
    async def deleting(self, id: str) -> AsyncIterator[None]:
        """See `Archives.deleting`."""
        yield
        await self.delete(id)

    async def delete(self, id: str) -> None:
        """See `Archives.delete`."""
        await asyncio.to_thread((self._folder / id).unlink, missing_ok=True)

    async def orphans(self, recorded: Recorded) -> set[str]:
        """See `Archives.orphans`."""
        names = await asyncio.to_thread(os.listdir, self._folder)
        found = {name for name in names if not name.startswith(".")} - self._making
        return found - set(await recorded())


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def refuse_full(folder: Path, reserve: int) -> None:
    """Raise `NoSpaceError` when the disk of *folder* has no more than *reserve* bytes left."""
    if capacity.free_bytes(os.statvfs(folder)) < reserve:
        raise NoSpaceError(
            "the host's disk is full",
            context={"path": str(folder)},
            suggestion="delete backups, destroy sandboxes, or free space on the host",
        )
