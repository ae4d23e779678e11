"""A snapshot as one file: a line that says what it is, a compressed archive of its files, a SHA-256.

Only what differs from the image is in it, so it can be used where that very image is: the line
names its digest, and an engine without it refuses before it reads on. Options, variables and
secrets of the sandbox are not in it.
"""

import asyncio
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import zstandard

from atoll.engine.storage import archives
from atoll.errors import InvalidImageError, ValidationFailedError
from atoll.host.threads import run_to_end
from atoll.images import upper
from atoll.images.archive import Limits, Readable

T = TypeVar("T")

MAGIC = b"ATOLL-SNAPSHOT "
FORMAT = 2
"""1 had no SHA-256 at its end."""

MAX_LINE = 256 << 10
"""Bytes of the first line: labels are most of it."""

_WINDOW = 1 << 27  # of zstd, in bytes: our own archives ask for 8 MiB at most
_PIPE = 1 << 20


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: what the archive behind it is."""

    format: int = FORMAT
    image: str
    digest: str
    instance_type: str
    disk: int  # bytes
    sandbox: str
    name: str | None = None
    labels: dict[str, str] = {}
    created_at: datetime


def encode(manifest: Manifest) -> bytes:
    """Return the first line."""
    return MAGIC + msgspec.json.encode(manifest) + b"\n"


async def sealed(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield *body*, then its SHA-256."""
    digest = hashlib.sha256()
    async for piece in body:
        await run_to_end(digest.update, piece)
        yield piece
    yield digest.digest()


async def whole(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what `sealed` was given. What was yielded counts for nothing until the end is reached.

    Raises:
        ValidationFailedError: at the end: this is not what was sealed.
    """
    digest, held = hashlib.sha256(), bytearray()
    async for piece in body:
        held += piece
        ready = bytes(held[: -digest.digest_size])
        if ready:
            del held[: -digest.digest_size]
            await run_to_end(digest.update, ready)
            yield ready
    if digest.digest() != held:
        raise _refused("it was cut or changed")


async def split(body: AsyncIterator[bytes]) -> tuple[Manifest, AsyncIterator[bytes]]:
    """Return what the first line says, and the rest.

    Raises:
        ValidationFailedError: this is no exported snapshot.
    """
    head = bytearray()
    async for piece in body:
        head += piece
        if b"\n" in piece or len(head) > MAX_LINE:
            break
    line, found, rest = bytes(head).partition(b"\n")
    if not found or not line.startswith(MAGIC):
        raise _refused("it does not begin as one")
    try:
        manifest = msgspec.json.decode(line.removeprefix(MAGIC), type=Manifest)
    except msgspec.MsgspecError as error:
        raise _refused(str(error)) from error
    if manifest.format != FORMAT:
        raise _refused(f"its format is {manifest.format}, this engine knows {FORMAT}")
    return manifest, _chained(rest, body)


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def _refused(reason: str) -> ValidationFailedError:
    return ValidationFailedError(
        f"this is no exported snapshot: {reason}",
        suggestion="give what export_snapshot returned, whole and unchanged",
    )


def packed(folder: Path) -> AsyncIterator[bytes]:
    """Yield the compressed archive of *folder*; raise as `upper.pack`."""
    return archives.compressed(_packed(folder), "zstd")


async def _packed(folder: Path) -> AsyncIterator[bytes]:
    reading, writing = _pipe()
    async with _beside(lambda: _pack(folder, writing)) as work:
        try:
            while data := await run_to_end(os.read, reading, _PIPE):
                yield data
            await asyncio.shield(work)
        finally:
            os.close(reading)


def _pack(folder: Path, writing: int) -> None:
    # Whoever reads has left: nobody hears of what is missing.
    with suppress(BrokenPipeError), os.fdopen(writing, "wb") as target:
        upper.pack(folder, target)


async def unpack(body: AsyncIterator[bytes], folder: Path, limits: Limits) -> None:
    """Place the archive *body* in the empty *folder*.

    Raises:
        ValidationFailedError: it is malformed, hostile, cut or over a limit.
        DiskQuotaExceededError: it does not fit.
    """
    await read_by(lambda reading: _unpack(reading, folder, limits), body)


async def read_by(call: Callable[[int], T], body: AsyncIterator[bytes]) -> T:
    """Return the result of *call*, a blocking one that reads *body* from a descriptor and closes it."""
    reading, writing = _pipe()
    async with _beside(lambda: call(reading)) as work:
        try:
            async for piece in body:
                await run_to_end(_write, writing, piece)
        except BrokenPipeError:
            pass  # the call has ended, and says why
        finally:
            os.close(writing)
        return await asyncio.shield(work)


def _write(writing: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(writing, view) :]


def _unpack(reading: int, folder: Path, limits: Limits) -> None:
    decoder = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    try:
        # Pulled, as a kilobyte may stand for gigabytes.
        with os.fdopen(reading, "rb") as source, decoder.stream_reader(source) as plain:
            upper.unpack(cast("Readable", plain), folder, limits)
            if source.read(1):
                raise _refused("something follows its end")
    except InvalidImageError as error:
        raise _refused(str(error)) from error
    except zstandard.ZstdError as error:
        raise _refused(f"its compression is damaged ({error})") from error


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    with suppress(OSError):  # a larger one only saves time
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE)
    return reading, writing


@asynccontextmanager
async def _beside(call: Callable[[], T]) -> AsyncIterator["asyncio.Future[T]"]:
    """Run *call* in a thread of its own: one that waits for another must not have its place."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
    work = asyncio.get_running_loop().run_in_executor(pool, call)
    try:
        yield work
    finally:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # taken note of
        pool.shutdown(wait=False)
