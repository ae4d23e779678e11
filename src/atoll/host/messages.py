"""HTTP messages of one connection, as they come: requests of a client, answers of a server."""

from collections import deque
from collections.abc import AsyncIterator, Callable

from atoll.host.pump import Channel
from atoll.wire.http1 import End, Event, Request, RequestReader, ResponseReader, Rest

PIECE = 1 << 10
"""Bytes that are read as HTTP at once, but for bodies: requests that wait for the one before them take
thirty times their bytes once they are read."""


class Incoming:
    """What a client sends.

    Args:
        channel: its connection.
        cut: makes what is raised where the client ends within a request.
    """

    def __init__(self, channel: Channel, cut: Callable[[], Exception]) -> None:
        self._channel = channel
        self._cut = cut
        self._reader = RequestReader()
        self._events: deque[Event] = deque()

    @property
    def begun(self) -> bool:
        """Whether something of the next request is there already."""
        return bool(self._events) or self._reader.begun

    def feed(self, data: bytes) -> None:
        """Take what was read from the connection; raise `Malformed` where it is no HTTP.

        What is not needed yet goes back there.
        """
        size = max(PIECE, self._reader.left)
        self._channel.unread(data[size:])
        self._events.extend(self._reader.feed(data[:size]))

    async def event(self) -> Event:
        """Return what comes next."""
        while not self._events:
            data = await self._channel.read()
            if not data:
                raise self._cut()
            self.feed(data)
        return self._events.popleft()

    async def head(self) -> Request:
        """Return the next head; what is left of a request before it is passed over."""
        while True:
            event = await self.event()
            if isinstance(event, Request):
                return event

    async def body(self) -> AsyncIterator[Event]:
        """Yield what follows a head, up to `End`."""
        while True:
            event = await self.event()
            yield event
            if isinstance(event, End):
                return

    async def rest(self) -> bytes:
        """Return what came behind a head that asks for another protocol, and forget HTTP."""
        event = await self.event()
        return event.data if isinstance(event, Rest) else b""

    async def go_on(self, request: Request) -> None:
        """Go on behind a request without a body that may have asked for another protocol in vain."""
        if request.upgrade is not None and isinstance(rest := await self.event(), Rest):
            self._reader.resume()
            self._channel.unread(rest.data)


class Answers:
    """What a server sends.

    Args:
        channel: the connection to it.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._reader = ResponseReader()

    @property
    def usable(self) -> bool:
        """Whether another request can be sent."""
        return not (self.channel.ended or self._reader.spoiled)

    def expect(self, method: bytes) -> None:
        """Read the answer to a request of *method* next."""
        self._reader.expect(method)

    async def events(self) -> list[Event]:
        """Return what comes next, at least one event.

        Raises:
            Malformed: the server does not speak HTTP, or hung up too early.
        """
        while data := await self.read():
            if events := self._reader.feed(data):
                return events
        return self._reader.end()

    async def read(self) -> bytes:
        """Return bytes of the connection, for `events`; none: it has ended."""
        return await self.channel.read()

    def close(self) -> None:
        """End the connection."""
        self.channel.abort()
