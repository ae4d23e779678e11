"""One lock file for whoever changes images on this host, in whichever process.

`flock` is let go by the kernel when its holder dies, so nothing is ever left locked.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from atoll.images.steps import Progress

_POLL = 0.2
"""Seconds between tries: a waiter must stay cancellable, which a blocking flock is not."""


@asynccontextmanager
async def exclusive(path: Path, what: str, progress: Progress) -> AsyncIterator[None]:
    """Hold the lock file *path*, waiting for it as long as it takes; says once that it waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        told = False
        while not _try(descriptor):
            if not told:
                progress(f"waiting for another process that {what}")
                told = True
            await asyncio.sleep(_POLL)
        yield
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
