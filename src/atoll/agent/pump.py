"""Reads a command's output, as fast as its callers take it and not one byte less.

When the command has ended, everything it wrote is already in the pipes: that much is owed and is
read however slowly the callers take it. Only what background children write later is bounded
by time (`DRAIN`), and after that it is read and thrown away, so that they neither block nor die.
"""

import fcntl
import os
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from atoll.agent.loop import READ, Loop
from atoll.wire.frames import CHUNK

DRAIN: Final = 0.2
"""Seconds that output of background children still counts after the command has ended."""


class _Source:
    __slots__ = ("kind", "owed")

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.owed = 0


class Pump:
    """Hands every chunk to *sink*; calls *on_end* when the last source is at its end."""

    def __init__(
        self, loop: Loop, sink: Callable[[int, bytes], None], on_end: Callable[[], None]
    ) -> None:
        self._loop, self._sink, self._on_end = loop, sink, on_end
        self._sources: dict[int, _Source] = {}
        self._paused = self._diverted = False

    @property
    def ended(self) -> bool:
        """Whether every source is at its end."""
        return not self._sources

    @property
    def owed(self) -> int:
        """Bytes of the command itself that are still to be read."""
        return sum(source.owed for source in self._sources.values())

    def add(self, fd: int, kind: int) -> None:
        """Read *fd* from now on; its output is of frame type *kind*."""
        os.set_blocking(fd, False)
        self._sources[fd] = _Source(kind)
        self._watch(fd)

    def pause(self, paused: bool) -> None:
        """Stop or go on reading."""
        if paused != self._paused and not self._diverted:
            self._paused = paused
            for fd in self._sources:
                self._watch(fd)

    def mark_owed(self) -> None:
        """Note what is in the pipes now: the command has ended."""
        for fd, source in self._sources.items():
            with suppress(OSError):
                answer = fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0")
                source.owed = struct.unpack("=i", answer)[0]

    def read_owed(self) -> None:
        """Read what is owed, whoever waits: no more than the pipes hold; then look for the end.

        Nobody may be connected who would ever make room for it.
        """
        for fd, source in list(self._sources.items()):
            before = source.owed + 1
            while fd in self._sources and source.owed and source.owed < before:
                before = source.owed
                self._read(fd)
            if fd in self._sources and not self._paused:
                self._read(fd)

    def divert(self) -> None:
        """Read on, but throw everything away."""
        self._diverted, self._paused = True, False
        for fd in self._sources:
            self._watch(fd)

    def _watch(self, fd: int) -> None:
        if self._paused:
            self._loop.forget(fd)
        else:
            self._loop.watch(fd, READ, lambda _: self._read(fd))

    def _read(self, fd: int) -> None:
        source = self._sources[fd]
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # EIO: the last slave of a terminal was closed
            data = b""
        source.owed = max(0, source.owed - len(data))
        if not data:
            self._close(fd)
        elif not self._diverted:
            self._sink(source.kind, data)

    def _close(self, fd: int) -> None:
        del self._sources[fd]
        self._loop.forget(fd)
        os.close(fd)
        if not self._sources:
            self._on_end()
