"""A command's standard input, kept until the command runs.

All of it is taken before the command starts, so that a caller who sends everything before reading
never waits for a command that waits for the caller. Small input stays in memory, more goes to an
unlinked file in the state directory.
"""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self

from starlette.requests import Request

from atoll.errors import FileTooLargeError, ValidationFailedError
from atoll.wire import frames
from atoll.wire.frames import Kind

IN_MEMORY = 1 << 20
"""Bytes kept in memory."""


class Spool:
    """Bytes that are written once and read once. A context manager.

    Args:
        directory: on the disk that may hold large input.
        limit: most bytes.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=str(directory))  # noqa: SIM115
        self._limit = limit
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        """Add *data*.

        Raises:
            FileTooLargeError: the limit is reached.
        """
        self.size += len(data)
        if self.size > self._limit:
            raise FileTooLargeError(
                f"standard input has more than {self._limit} bytes",
                context={"limit": self._limit},
                suggestion="write a file and redirect from it",
            )
        self._file.write(data)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all of it from the beginning."""
        self._file.seek(0)
        while chunk := self._file.read(frames.CHUNK):
            yield chunk


async def read_frames(request: Request, spool: Spool) -> bytes:
    """Take a body of frames: HEADER, STDIN…, STDIN_CLOSE; return the header's payload.

    Raises:
        ValidationFailedError: it is something else.
    """
    decoder = frames.Decoder()
    header: bytes | None = None
    try:
        async for data in request.stream():
            for kind, payload in decoder.feed(data):
                if header is None and kind == Kind.HEADER:
                    header = payload
                elif header is not None and kind == Kind.STDIN:
                    spool.write(payload)
                elif kind != Kind.STDIN_CLOSE:
                    raise _unexpected(f"a frame of kind {kind}")
    except frames.FrameError as error:
        raise _unexpected(str(error)) from error
    if header is None or decoder.pending:
        raise _unexpected("it ends too early")
    return header


def _unexpected(problem: str) -> ValidationFailedError:
    return ValidationFailedError(f"the body is not HEADER, STDIN frames and STDIN_CLOSE: {problem}")
