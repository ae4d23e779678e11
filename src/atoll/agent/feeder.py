"""Standard input of a command: queued bytes go into a pipe or terminal as it takes them."""

import os
from collections import deque
from collections.abc import Callable
from typing import Final

from atoll.agent.loop import WRITE, Loop

LIMIT: Final = 1 << 20
"""Queued bytes after which a sender has to wait."""


class Feeder:
    """Writes to *fd* without blocking; `on_room` is called when a full queue has room again."""

    def __init__(self, loop: Loop, fd: int, on_room: Callable[[], None]) -> None:
        os.set_blocking(fd, False)
        self._loop, self._fd, self._on_room = loop, fd, on_room
        self._queue: deque[memoryview] = deque()
        self._size = 0
        self._end = False
        self.closed = False

    @property
    def full(self) -> bool:
        """Whether the command reads more slowly than its caller writes."""
        return self._size >= LIMIT

    def write(self, data: bytes) -> None:
        """Queue *data*. What comes after the end, or after the reader is gone, is dropped."""
        if self.closed or self._end or not data:
            return
        self._queue.append(memoryview(data))
        self._size += len(data)
        self._flush()

    def end(self) -> None:
        """Close the descriptor once everything queued is written."""
        self._end = True
        if not self._queue:
            self.close()

    def close(self) -> None:
        """Close the descriptor at once."""
        if not self.closed:
            self.closed = True
            self._queue.clear()
            self._size = 0
            self._loop.forget(self._fd)
            os.close(self._fd)

    def _flush(self) -> None:
        was_full = self.full
        try:
            while self._queue:
                self._drop_written(os.write(self._fd, self._queue[0]))
        except BlockingIOError:
            self._loop.watch(self._fd, WRITE, lambda _: self._flush())
        except OSError:
            self.close()
        else:
            self._loop.forget(self._fd)
            if self._end:
                self.close()
        if was_full and not self.full:
            self._on_room()

    def _drop_written(self, count: int) -> None:
        self._size -= count
        if count < len(self._queue[0]):
            self._queue[0] = self._queue[0][count:]
        else:
            self._queue.popleft()
