"""Content on its way between coroutines and blocking calls: in pieces, in flat memory."""

import asyncio
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import IO, Any

from atoll.errors import ValidationFailedError

IN_MEMORY = 1 << 20
"""Bytes of a stream that are held in memory before it is sent; more wait in a file."""

Content = bytes | bytearray | memoryview | str | AsyncIterable[bytes] | None
"""What is put: None is empty."""


async def pieces(chunks: Iterator[Any]) -> AsyncIterator[bytes]:
    """Yield what a blocking iterator does."""
    while (piece := await asyncio.to_thread(next, chunks, None)) is not None:
        yield bytes(piece)


async def spooled(value: Content) -> IO[bytes]:
    """Return *value* as a file at its beginning; the caller closes it.

    Raises:
        ValidationFailedError: it is neither text, bytes nor a stream of bytes.
    """
    file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - handed over
    try:
        if isinstance(value, AsyncIterable):
            async for piece in value:
                await asyncio.to_thread(file.write, piece)
        else:
            file.write(_plain(value))
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


def _plain(value: object) -> bytes:
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ValidationFailedError("a value is text, bytes or a stream of bytes")
