"""One connection of an operation: frames in, frames out, never blocking."""

import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from atoll.agent.farewell import hang_up
from atoll.agent.journal import FRAME_CHARGE
from atoll.agent.loop import GONE, READ, WRITE, Loop
from atoll.wire import frames
from atoll.wire.frames import Frame

BACKLOG: Final = 1 << 20
"""Unsent bytes (with a charge per frame) after which a connection counts as full. Less than the
replay window, so that what a caller has not read when its connection breaks is still kept."""

_READ_SIZE: Final = 1 << 16
_BATCH: Final = 64
"""Frames handed to one sendmsg: below IOV_MAX, enough for 4 MiB of full pipes."""


class Viewer:
    """Sends queued frames as the peer takes them and hands received ones to `on_frame`.

    Args:
        on_frame: called with every received frame.
        on_gone: called once when the peer is gone or sent nonsense.
        on_room: called when a full connection has room again, and when `finish` is done.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        *,
        on_frame: Callable[["Viewer", Frame], None],
        on_gone: Callable[["Viewer"], None] = lambda _: None,
        on_room: Callable[["Viewer"], None] = lambda _: None,
    ) -> None:
        sock.setblocking(False)
        self._loop, self._sock = loop, sock
        self._fd = sock.fileno()
        self._on_frame, self._on_gone, self._on_room = on_frame, on_gone, on_room
        self._queue: deque[bytes | memoryview] = deque()
        self._decoder = frames.Decoder()
        self._reading = True
        self._finishing = False
        self.backlog = 0
        self.lost = 0
        self._progress = time.monotonic()
        self.closed = False
        self._watch()

    @property
    def full(self) -> bool:
        """Whether its peer reads more slowly than the command writes."""
        return self.backlog >= BACKLOG

    def send(self, frame: bytes) -> None:
        """Queue *frame*; what is queued in one round of the loop is sent together."""
        if self.closed or self._finishing:
            return
        self._queue.append(frame)
        self.backlog += len(frame) + FRAME_CHARGE
        if len(self._queue) == 1:
            self._loop.soon(self._flush)

    @property
    def stalled(self) -> float:
        """Seconds since a full connection last took anything; 0 when it is not full."""
        return time.monotonic() - self._progress if self.full else 0.0

    def drop(self) -> None:
        """Close at once: the peer can attach again from where it is."""
        self._lost()

    def finish(self) -> None:
        """Hang up once everything is sent."""
        self._finishing = True
        if not self._queue:
            self._hang_up()

    def pause(self, paused: bool) -> None:
        """Stop or go on reading from the peer (its end is noticed anyway)."""
        self._reading = not paused
        if not self.closed and not self._finishing:
            self._watch()

    def _hang_up(self) -> None:
        self._queue.clear()
        hang_up(self._loop, self._sock, self._done)

    def _done(self) -> None:
        self.closed = True
        self._on_room(self)

    def _watch(self) -> None:
        mask = GONE | (READ if self._reading else 0) | (WRITE if self._queue else 0)
        self._loop.watch(self._fd, mask, self._ready)

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if not self.closed and events & (READ | GONE):
            self._receive(everything=bool(events & GONE))

    def _flush(self) -> None:
        if self.closed or not self._queue:
            return
        was_full = self.full
        try:
            while self._queue:
                batch = [self._queue[i] for i in range(min(_BATCH, len(self._queue)))]
                self._drop_sent(self._sock.sendmsg(batch))
        except BlockingIOError:
            pass
        except OSError:
            self._lost()
            return
        if self._finishing and not self._queue:
            self._hang_up()
        else:
            self._watch()
        if was_full and not self.full:
            self._on_room(self)

    def _drop_sent(self, count: int) -> None:
        self.backlog -= count
        self._progress = time.monotonic()
        while count:
            first = self._queue[0]
            if count < len(first):
                self._queue[0] = memoryview(first)[count:]
                return
            count -= len(first)
            self._queue.popleft()
            self.backlog -= FRAME_CHARGE

    def _receive(self, *, everything: bool) -> None:
        try:
            while data := self._sock.recv(_READ_SIZE):
                for frame in self._decoder.feed(data):
                    if self._finishing:
                        return
                    self._on_frame(self, frame)
                if not everything:
                    return
        except BlockingIOError:
            if not everything:
                return
        except (OSError, frames.FrameError):
            pass
        self._lost()

    def _lost(self) -> None:
        if not self.closed:
            self.closed = True
            self.lost, self.backlog = self.backlog, 0
            self._queue.clear()
            self._loop.forget(self._fd)
            self._sock.close()
            self._on_gone(self)
