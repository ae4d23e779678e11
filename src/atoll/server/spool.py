"""A command's standard input, kept until the command runs.

All of it is taken before the command starts, so that a caller who sends everything before reading
never waits for a command that waits for the caller. Small input stays in memory, more goes to an
unlinked file in the state directory.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.engine.storage.room import Share
from atoll.errors import FileTooLargeError, ValidationFailedError, from_os_error
from atoll.server import answer
from atoll.wire import frames
from atoll.wire.frames import Kind

T = TypeVar("T")

IN_MEMORY = 1 << 20
"""Bytes kept in memory, and written or read at once."""


class Spool:
    """Bytes that are written once and read once. A context manager.

    Args:
        directory: on the disk that may hold large input.
        limit: most bytes.
        share: counts what is written to the disk.
    """

    def __init__(self, directory: Path, limit: int, share: Share) -> None:
        self._directory = directory
        self._limit = limit
        self._share = share
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget all of it. Idempotent."""
        if self._file:
            self._file.close()
        self._share.release()

    async def write(self, data: bytes) -> None:
        """Add *data*.

        Raises:
            FileTooLargeError: the limit is reached.
            NoSpaceError: the disk is full, or all callers' input together over its limit.
        """
        self.size += len(data)
        if self.size > self._limit:
            raise FileTooLargeError(
                f"standard input has more than {self._limit} bytes",
                context={"limit": self._limit},
                suggestion="write a file and redirect from it",
            )
        self._memory += data
        if len(self._memory) > IN_MEMORY:
            await self._flush()

    async def _flush(self) -> None:
        self._share.take(len(self._memory))
        data, self._memory = self._memory, bytearray()
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115
            # Shielded: the descriptor must not be closed, and used again, under a write.
            await _finished(asyncio.to_thread(_write, self._file, data))
        except OSError as error:
            raise from_os_error(error, str(self._directory)) from error

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all of it from the beginning."""
        if self._file:
            self._file.seek(0)
            while block := await _finished(asyncio.to_thread(self._file.read, IN_MEMORY)):
                for start in range(0, len(block), frames.CHUNK):
                    yield block[start : start + frames.CHUNK]
        for start in range(0, len(self._memory), frames.CHUNK):
            yield bytes(self._memory[start : start + frames.CHUNK])


def spooled(engine: Engine, limit: int) -> Spool:
    """Return a spool in the state directory of *engine*, within what all callers may take there."""
    return Spool(engine.settings.storage.state_dir, limit, engine.room.share())


def _write(file: IO[bytes], data: bytearray) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


async def _finished(work: Coroutine[Any, Any, T]) -> T:
    """Return what *work* returns; when cancelled, only after it has ended."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def read_frames(request: Request, spool: Spool) -> bytes:
    """Take a body of frames: HEADER, STDIN…, STDIN_CLOSE; return the header's payload.

    Raises:
        ValidationFailedError: it is something else.
    """
    decoder = frames.Decoder()
    header: bytes | None = None
    try:
        with request.scope["call"].budget.share() as share:
            async for data in answer.uploaded(request):
                for kind, payload in decoder.feed(data):
                    if header is None and kind == Kind.HEADER:
                        header = payload
                    elif header is not None and kind == Kind.STDIN:
                        await spool.write(payload)
                    elif kind != Kind.STDIN_CLOSE:
                        raise _unexpected(f"a frame of kind {kind}")
                share.hold(decoder.pending)
    except frames.FrameError as error:
        raise _unexpected(str(error)) from error
    if header is None or decoder.pending:
        raise _unexpected("it ends too early")
    return header


def _unexpected(problem: str) -> ValidationFailedError:
    return ValidationFailedError(f"the body is not HEADER, STDIN frames and STDIN_CLOSE: {problem}")
