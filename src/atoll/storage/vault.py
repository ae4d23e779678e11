"""Where archives of backups are kept: one file each below the state directory.

An archive appears complete and durable or not at all. Its name is its id, chosen by the engine.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from atoll.errors import NoSpaceError, from_os_error
from atoll.storage import capacity

_DRAFT = ".new-"
_CHECK_EVERY = 64 << 20
"""Bytes written between two looks at what the disk has left."""


class VaultWriter:
    """An archive that is being written."""

    def __init__(self, file: BinaryIO, folder: Path, reserve: int) -> None:
        self._file = file
        self._folder = folder
        self._reserve = reserve
        self._unchecked = 0
        self._hash = hashlib.sha256()
        self.size = 0

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


class Vault:
    """Keeps archives in a folder.

    Args:
        folder: made when it is missing; nobody else's.
        reserve: bytes that stay free on its disk.
    """

    def __init__(self, folder: Path, reserve: int) -> None:
        self._folder = folder
        self._reserve = reserve

    def open(self) -> None:
        """Make the folder; remove what an engine that was killed had not finished."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for draft in self._folder.glob(f"{_DRAFT}*"):
            draft.unlink()

    @asynccontextmanager
    async def writing(self, id: str) -> AsyncIterator[VaultWriter]:
        """Write an archive; it is there when the block ends, and nothing is when that fails.

        Raises:
            NoSpaceError: the disk is full.
        """
        refuse_full(self._folder, self._reserve)
        draft = self._folder / (_DRAFT + id)
        file = draft.open("xb")
        try:
            with file:
                yield VaultWriter(file, self._folder, self._reserve)
                await asyncio.to_thread(_sync, file)
            await asyncio.to_thread(self._publish, draft, id)
        except BaseException:
            with suppress(FileNotFoundError):
                draft.unlink()
            raise

    def _publish(self, draft: Path, id: str) -> None:
        draft.rename(self._folder / id)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def opened(self, id: str) -> BinaryIO:
        """Open an archive to read it.

        Raises:
            FileNotFoundError: there is none.
        """
        try:
            return (self._folder / id).open("rb", buffering=0)
        except OSError as error:
            raise from_os_error(error, id) from error

    async def delete(self, id: str) -> None:
        """Remove an archive. Idempotent."""
        await asyncio.to_thread((self._folder / id).unlink, missing_ok=True)

    async def list(self) -> list[str]:
        """Return the ids of all archives."""
        names = await asyncio.to_thread(os.listdir, self._folder)
        return [name for name in names if not name.startswith(".")]


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
