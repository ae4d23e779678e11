"""Bytes of one connection with back-pressure, and bytes between two of them.

asyncio's streams copy everything twice and read at most 64 KiB at once; at a gigabyte that is
half of the time. Here what the kernel gave is handed on as it is.
"""

import asyncio
import math
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, cast

HIGH = 1 << 18
"""Bytes that may wait where nothing else is said: one read of uvloop."""

STALL = 300.0
"""Seconds the other side may leave unread what was written: a film may be paused, but holds a
server inside and half a megabyte here."""

LINGER = 30.0
"""Seconds that a connection which is closed has to take what was written."""

HALF_OPEN = 60.0
"""Seconds without traffic after which a tunnel ends that one side has ended already."""


class Channel(asyncio.Protocol):
    """One connection: `read` and `write` wait, and so does whoever is on the other side.

    Args:
        gone: called once when the other side has ended or the connection is lost.
        high: bytes that wait to be read, or written, before the other side has to wait.
    """

    def __init__(self, gone: Callable[[], None] | None = None, high: int = HIGH) -> None:
        self.high = high
        self._transport: asyncio.Transport
        self._gone = gone
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._ended = False  # nothing more will come
        self._lost = False
        self._reading = True
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []
        self._full = False

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over *transport*, new or from another protocol."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self.high)

    def data_received(self, data: bytes) -> None:
        """Keep *data* until it is read."""
        self._chunks.append(data)
        self._size += len(data)
        if self._size > self.high and self._reading:
            self._reading = False
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """Note the end; the way back stays open, where it can (TLS has no half-open connections)."""
        self._end()
        return self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Let nobody wait any more."""
        self._lost = True
        for writer in self._writers:
            if not writer.done():
                writer.set_result(None)
        self._end()

    def pause_writing(self) -> None:
        """Let writers wait."""
        self._full = True

    def resume_writing(self) -> None:
        """Let writers go on."""
        self._full = False
        for writer in self._writers:
            if not writer.done():
                writer.set_result(None)

    def _end(self) -> None:
        self._ended = True
        self._wake()
        if self._gone:
            gone, self._gone = self._gone, None
            gone()

    def _wake(self) -> None:
        if self._reader and not self._reader.done():
            self._reader.set_result(None)

    # What the proxy calls.

    @property
    def ended(self) -> bool:
        """Whether the other side will send nothing more."""
        return self._ended

    @property
    def lost(self) -> bool:
        """Whether the connection is gone, both ways."""
        return self._lost

    def half_open(self) -> None:
        """Tell nobody when the other side ends: that is a part of the protocol from now on."""
        self._gone = None

    def acknowledge_quickly(self) -> None:
        """Do not delay the next acknowledgements.

        Many servers write head and body apart and wait in between for an acknowledgement, which
        the kernel delays by 40 ms in the hope of an answer. It forgets this wish after a while.
        """
        connection: Any = self._transport.get_extra_info("socket")
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    async def read(self) -> bytes:
        """Return what has come; empty at the end."""
        while not self._chunks:
            if self._ended:
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = self._chunks.popleft()
        self._size -= len(data)
        if not self._reading and self._size <= self.high // 2:
            self._reading = True
            if not self._lost:
                self._transport.resume_reading()
        return data

    def unread(self, data: bytes) -> None:
        """Put *data* back: the next `read` returns it."""
        if data:
            self._chunks.appendleft(data)
            self._size += len(data)

    async def write(self, data: bytes) -> None:
        """Send *data*; wait while the other side does not read.

        Raises:
            ConnectionResetError: the connection is lost.
        """
        if self._lost:
            raise ConnectionResetError("the connection is lost")
        self._transport.write(data)
        if self._full:
            await self.drained()

    async def drained(self) -> None:
        """Wait until there is room for more.

        Raises:
            ConnectionResetError: the other side read nothing for `STALL`; the connection is ended.
        """
        writer = asyncio.get_running_loop().create_future()
        self._writers.append(writer)
        try:
            async with asyncio.timeout(STALL):
                await writer
        except TimeoutError as error:
            self.abort()
            raise ConnectionResetError("the other side does not read") from error
        finally:
            self._writers.remove(writer)

    def write_end(self) -> None:
        """Send nothing more; what comes is still read, where the transport has half-open ways."""
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self.close()

    def close(self) -> None:
        """Send what is written, then end the connection."""
        if not self._transport.is_closing():
            self._transport.close()
            if self._transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(LINGER, self._transport.abort)

    def abort(self) -> None:
        """End the connection at once."""
        if not self._lost:
            self._transport.abort()

    def hand_over(self) -> tuple[asyncio.Transport, bytes]:
        """Give the transport away, with what was not read."""
        left = b"".join(self._chunks)
        self._chunks.clear()
        self._gone = None
        if not self._reading:
            self._transport.resume_reading()
        return self._transport, left


class Deadline:
    """One timer for deadlines that are set and met all the time: setting one is an assignment.

    Args:
        passed: called when a deadline has passed.
    """

    def __init__(self, passed: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._passed = passed
        self._at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Have until *seconds* from now."""
        self._at = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._at:
            self.cancel()
            self._timer = self._loop.call_at(self._at, self._look)

    def clear(self) -> None:
        """Have any time."""
        self._at = math.inf

    def cancel(self) -> None:
        """Forget the timer: it is of no more use."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._at <= self._loop.time():
            self._passed()
        elif self._at < math.inf:
            self._timer = self._loop.call_at(self._at, self._look)


class Counts:
    """Bytes that went through a tunnel: from the visitor, and to it."""

    def __init__(self) -> None:
        self.received = self.sent = 0


async def tunnel(
    visitor: Channel, server: Channel, touch: Callable[[], None], counts: Counts
) -> None:
    """Carry bytes both ways until both sides have ended, or one is lost; then close both.

    Args:
        touch: called for every piece.
        counts: is kept up to date.
    """

    def received(size: int) -> None:
        counts.received += size
        touch()

    def sent(size: int) -> None:
        counts.sent += size
        touch()

    try:
        await both(
            (_carry(visitor, server, received), _carry(server, visitor, sent)),
            lambda: counts.received + counts.sent,
        )
    finally:
        visitor.close()
        server.close()


async def both(
    carrying: Iterable[Coroutine[Any, Any, None]], moved: Callable[[], int]
) -> set["asyncio.Task[None]"]:
    """Run both ways of a connection until they have ended, or one failed; nothing of them is left.

    Where one has ended, the other is given up once nothing moves for `HALF_OPEN`.

    Args:
        carrying: each carries what comes from one side to the other.
        moved: returns how many bytes went so far.

    Returns:
        The ways that ended by themselves.
    """
    ways = {asyncio.create_task(way) for way in carrying}
    try:
        done, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        while left and not any(way.exception() for way in done):
            before = moved()
            more, left = await asyncio.wait(left, timeout=HALF_OPEN)
            done |= more
            if not more and moved() == before:
                break
        return done
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _carry(source: Channel, sink: Channel, note: Callable[[int], None]) -> None:
    while data := await source.read():
        note(len(data))
        await sink.write(data)
    if source.lost:
        raise ConnectionResetError("the connection is lost")
    sink.write_end()
