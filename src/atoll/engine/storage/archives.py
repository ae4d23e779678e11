"""Compression and checksum of archives, piece by piece in flat memory."""

import asyncio
import gzip
import hashlib
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from typing import BinaryIO, TypeVar, cast

import zstandard

from atoll.errors import BackupRestoreFailedError, InvalidBackupConfigError
from atoll.storage.vault import Reading

T = TypeVar("T")

COMPRESSIONS = ("zstd", "gzip", "none")

PIECE = 1 << 20
"""Bytes of one step in a thread: handing over costs more than small steps."""

_WINDOW = 1 << 27  # of zstd, in bytes: the most our own archives ask for is 8 MiB
_GZIP = 31  # zlib's window size with a gzip header


class _Compressor:
    def __init__(self, compression: str) -> None:
        self._object = (
            zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
            if compression == "zstd"
            else zlib.compressobj(level=1, wbits=_GZIP)
        )

    def step(self, data: bytes) -> bytes:
        return self._object.compress(data)

    def end(self) -> bytes:
        return self._object.flush()


def check(compression: str) -> None:
    """Refuse an unknown compression.

    Raises:
        InvalidBackupConfigError: names those there are.
    """
    if compression not in COMPRESSIONS:
        raise InvalidBackupConfigError(
            f"{compression[:40]!r} is not a compression",
            context={"field": "compression"},
            suggestion=f"use one of {', '.join(COMPRESSIONS)}",
        )


async def compressed(body: AsyncIterator[bytes], compression: str) -> AsyncIterator[bytes]:
    """Yield *body* compressed, in larger pieces."""
    coder = None if compression == "none" else _Compressor(compression)
    async for whole in _batches(body):
        coded = await asyncio.to_thread(coder.step, whole) if coder else whole
        if coded:
            yield coded
    if coder:
        yield await asyncio.to_thread(coder.end)


async def _batches(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    batch = bytearray()
    async for data in body:
        batch += data
        if len(batch) >= PIECE:
            yield bytes(batch)
            batch.clear()
    if batch:
        yield bytes(batch)


class Checked:
    """A file whose bytes are counted into a SHA-256 as they are read, and its contents.

    What is read is pulled: a kilobyte of an archive may stand for gigabytes of zeros.

    Args:
        file: read by blocking calls.
        threads: where those run; None: where all others do.
    """

    def __init__(self, file: Reading, threads: Executor | None = None) -> None:
        self._file = file
        self._threads = threads
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read as the file does."""
        data = self._file.read(size)
        self._hash.update(data)
        return data

    def hex(self) -> str:
        """Return the digest of what was read so far."""
        return self._hash.hexdigest()

    async def decompressed(self, compression: str) -> AsyncIterator[bytes]:
        """Yield what was compressed, up to the end of the file.

        Raises:
            BackupRestoreFailedError: these are no bytes that `compressed` yielded.
        """
        pieces = self._pieces(compression)
        try:
            while data := await self._run(lambda: next(pieces, b"")):
                yield data
        except (zstandard.ZstdError, zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise BackupRestoreFailedError(f"the archive is damaged: {error}") from error
        while await self._run(lambda: self.read(PIECE)):  # what is behind the end counts too
            pass

    async def _run(self, step: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, step)

    def _pieces(self, compression: str) -> Iterator[bytes]:
        source = cast("BinaryIO", self)
        if compression == "zstd":
            decoder = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
            yield from decoder.read_to_iter(source, read_size=1 << 17, write_size=PIECE)
            return
        reader = gzip.GzipFile(fileobj=source) if compression == "gzip" else source
        while data := reader.read(PIECE):
            yield data
