"""What a session's shell prints about its state: read from a pipe while the shell runs.

Not a file, not even one in memory: a shell that has set `ulimit -f 0` could not write it.
"""

import os
from typing import Final

from atoll.agent.loop import READ, Loop
from atoll.agent.shell.launching import STATE_LIMIT

_CHUNK: Final = 64 << 10
_ROUNDS: Final = 32
"""Reads after the shell's end: more than a pipe holds, but not what a child writes for ever."""


class Dump:
    """Keeps up to `STATE_LIMIT` bytes and one; what comes after that is read and dropped."""

    def __init__(self, loop: Loop, fd: int) -> None:
        os.set_blocking(fd, False)
        self._loop, self._fd = loop, fd
        self._data = bytearray()
        loop.watch(fd, READ, self._on_ready)

    def take(self) -> bytes:
        """Return what the shell wrote, which has ended."""
        for _ in range(_ROUNDS):
            if not self._read():
                break
        self.close()
        return bytes(self._data)

    def close(self) -> None:
        """Read no more."""
        if self._fd >= 0:
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _on_ready(self, _: int) -> None:
        self._read()

    def _read(self) -> bool:
        """Read once; return whether there may be more."""
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        self._data += data[: STATE_LIMIT + 1 - len(self._data)]
        if not data:
            self.close()
        return bool(data)
