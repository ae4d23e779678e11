"""Opening a layer blob uncompressed, whatever it is compressed with.

gzip is the standard library's. zstd is decompressed by its program through a pipe, never into a
file, so that the unpacker's limit also bounds what a bomb can write.
"""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, cast

from atoll.errors import InvalidImageError
from atoll.host import process
from atoll.images.steps import missing_tool


@asynccontextmanager
async def opened(path: Path, media_type: str) -> AsyncIterator[BinaryIO]:
    """Open the blob *path* for reading.

    Raises:
        InvalidImageError: its compression is not supported, or the blob is damaged.
        RuntimeNotAvailableError: it needs a program that is not installed.
    """
    if media_type.endswith(("+zstd", ".zstd")):
        async with _through(["zstd", "--decompress", "--stdout", "--quiet", path]) as source:
            yield source
    elif media_type.endswith(("+gzip", ".gzip")):
        with gzip.open(path) as file:
            yield cast("BinaryIO", file)
    elif media_type.endswith(".tar"):
        with path.open("rb") as plain:
            yield plain
    else:
        raise InvalidImageError(
            f"layers of type {media_type[:200]} are not supported",
            context={"mediaType": media_type[:200]},
        )


@asynccontextmanager
async def _through(argv: list[str | Path]) -> AsyncIterator[BinaryIO]:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    running = asyncio.create_task(process.run(argv, timeout=None, stdout=writer))
    running.add_done_callback(lambda _: os.close(writer))
    try:
        with os.fdopen(reader, "rb") as source:
            yield source
        # The pipe is closed now: a program that is not done ends by SIGPIPE.
        done = await running
    except FileNotFoundError as error:
        raise missing_tool(str(argv[0])) from error
    finally:
        running.cancel()
    if done.code:
        raise InvalidImageError(f"the layer is damaged: {done.message}")
