"""Space kept back for the store: on a full disk sandboxes can still be stopped and destroyed.

A destroy frees space, but has to be written first. So a file holds some blocks that are let go when
a write finds the disk full, and taken again when there is room.
"""

import os
import time
from pathlib import Path

SIZE = 4 << 20
"""Bytes: some hundred commits, after which the store's log begins anew."""

RETRY = 1.0
"""Seconds between two tries to take the space again."""


class Ballast:
    """The file that holds the space.

    Args:
        path: of the file.
        size: bytes it holds.
    """

    def __init__(self, path: Path, size: int = SIZE) -> None:
        self._path = path
        self._size = size
        self._next = 0.0
        self.held = False

    def hold(self) -> None:
        """Take the space if it is not held and there is some; asks the disk only now and then."""
        if self.held or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + RETRY
        try:
            self.held = self._allocated()
        except OSError:
            self._path.unlink(missing_ok=True)

    def _allocated(self) -> bool:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, self._size)
        finally:
            os.close(fd)
        return True

    def release(self) -> bool:
        """Let the space go; return whether there was any."""
        released, self.held = self.held, False
        self._path.unlink(missing_ok=True)
        self._next = time.monotonic() + RETRY
        return released
