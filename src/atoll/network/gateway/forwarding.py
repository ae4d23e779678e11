"""One request to a server outside and its answer, piece by piece, with back-pressure both ways."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from atoll.host.messages import Answers
from atoll.host.pump import Channel, tunnel
from atoll.host.pump import Counts as PumpCounts
from atoll.network.gateway import messages, narrow
from atoll.network.gateway.dialing import Dialer, reason
from atoll.network.gateway.tunnel import Counts
from atoll.wire import http1
from atoll.wire.http1 import Data, End, Event, Malformed, Request, Response, Rest

SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS"})
"""Methods that may be sent again when a server hung up on a connection that was kept."""

ANSWER_TIMEOUT = 600.0
"""Seconds without a byte after which a server's answer is given up: models think for minutes."""

MAX_EARLY = 32
"""Informational answers (100, 103) that are passed on before the answer itself has to come."""


class Failure(Exception):  # noqa: N818  # an outcome
    """There is no answer, and the client was sent nothing yet."""


class Cut(Exception):  # noqa: N818  # an end, not an error of ours
    """The answer cannot be completed: the client must see that it is cut."""


class Place(NamedTuple):
    """Where a request goes. `host`: whose certificate is asked for; `encrypted`: by TLS."""

    address: str
    port: int
    host: str
    encrypted: bool


class Server(Answers):
    """A connection to a server."""

    def __init__(self, channel: Channel, place: Place) -> None:
        super().__init__(channel)
        self.place = place

    @classmethod
    async def connect(cls, dialer: Dialer, place: Place, high: int) -> "Server":
        """Open one; *high*: see `Channel`.

        Raises:
            OSError: nobody answers there, or its certificate is not one of `place.host`.
        """
        loop = asyncio.get_running_loop()
        connection = await dialer.connect(place.address, place.port)
        tls: ssl.SSLContext | None = dialer.trust if place.encrypted else None
        try:
            channel = Channel(high=high)
            await loop.create_connection(
                lambda: narrow.protocol(channel),
                sock=connection,
                ssl=tls,
                server_hostname=place.host if tls else None,
            )
        except BaseException:
            connection.close()
            raise
        return cls(channel, place)

    async def read(self) -> bytes:
        """See `Answers.read`; raise TimeoutError where it is silent."""
        async with asyncio.timeout(ANSWER_TIMEOUT):
            return await super().read()


class Forwarding:
    """A request that goes out, and its answer.

    Args:
        request: its head, as it came.
        head: its head, as it goes out.
        body: the rest of it, events up to `End`; None: there is none.
        client: the client's connection.
        counts: bytes that went, kept up to date.
    """

    def __init__(
        self,
        request: Request,
        head: bytes,
        body: AsyncIterator[Event] | None,
        client: Channel,
        counts: Counts,
        *,
        chunked: bool,
    ) -> None:
        self._request = request
        self._head = head
        self._body = body
        self._chunked = chunked
        self._client = client
        self._counts = counts
        self._early = 0
        self.status = 0
        self.keep = request.keep_alive
        """Whether the client's connection is good for another request."""

        self.server: Server | None = None
        """The connection to the server, if that is good for another request."""

    async def run(
        self,
        dialer: Dialer,
        place: Place,
        kept: Server | None,
        rest: Callable[[], Awaitable[bytes]],
    ) -> None:
        """Do all of it.

        Args:
            dialer: makes the connection.
            place: where it goes.
            kept: a connection of an earlier request.
            rest: returns what the client sent behind a head that asks for another protocol.

        Raises:
            Failure: there is no answer.
            Cut: the client was sent a part.
            Malformed: the body of the request is; the client was sent nothing yet.
            ConnectionError: the client is gone.
        """
        server, events = await self._asked(dialer, place, kept)
        sender = asyncio.ensure_future(self._send_body(server)) if self._body else None
        if sender:
            sender.add_done_callback(lambda done: _ended(done, server))
        keep_server = False
        try:
            keep_server = await self._answer(server, events, rest)
        except (Failure, Cut) as error:
            if sender and sender.done() and not sender.cancelled():
                fault = sender.exception()
                if isinstance(fault, Malformed):
                    raise (Cut(str(fault)) if self.status else fault) from error
            raise
        finally:
            if sender and not self._settled(sender):
                self.keep = keep_server = False
            if keep_server:
                self.server = server
            else:
                server.close()

    async def _asked(
        self, dialer: Dialer, place: Place, kept: Server | None
    ) -> tuple[Server, list[Event]]:
        """Send the head; return the connection, and the first events where there is no body."""
        again = self._request.method in SAFE and self._body is None
        if kept and kept.place == place and kept.usable and again:
            with suppress(ConnectionError, Malformed, TimeoutError):
                return await self._ask(kept)
        if kept:
            kept.close()
        try:
            return await self._ask(await Server.connect(dialer, place, self._client.high))
        except (OSError, Malformed) as error:
            raise Failure(reason(error)) from error

    async def _ask(self, server: Server) -> tuple[Server, list[Event]]:
        server.expect(self._request.method)
        try:
            await server.channel.write(self._head)
            self._counts.up += len(self._head)
            server.channel.acknowledge_quickly()
            return server, [] if self._body else await server.events()
        except BaseException:
            server.close()
            raise

    async def _send_body(self, server: Server) -> None:
        """Send it; a server that hangs up may have answered already, so that is no failure."""
        if self._body is None:
            return
        async for event in self._body:
            data = b""
            if isinstance(event, Data):
                data = http1.write_chunk(event.data) if self._chunked else event.data
            elif isinstance(event, End) and self._chunked:
                data = http1.write_last_chunk(messages.trailers(event.trailers))
            self._counts.up += len(data)
            with suppress(ConnectionError):
                await server.channel.write(data)

    def _settled(self, sender: "asyncio.Future[None]") -> bool:
        """Tell whether all of the body was sent; give up what is left."""
        if not sender.done():
            sender.cancel()
            return False
        return not sender.cancelled() and sender.exception() is None

    # The answer

    async def _answer(
        self, server: Server, events: list[Event], rest: Callable[[], Awaitable[bytes]]
    ) -> bool:
        """Pass the answer on; return whether the server's connection is good for another one."""
        chunked = keep = False
        while True:
            out: list[bytes] = []
            for event in events or await self._next(server):
                if isinstance(event, Response):
                    if event.status == 101:
                        await self._upgrade(server, event, events, rest)
                        return False
                    chunked = self._framed(event)
                    keep = event.keep_alive
                    fields = messages.response_fields(event.fields)
                    head = http1.relayed(
                        event, self._request, fields, chunked=chunked, keep=self.keep
                    )
                    out.append(head)
                elif isinstance(event, Data):
                    out.append(http1.write_chunk(event.data) if chunked else event.data)
                elif isinstance(event, End) and self.status:
                    if chunked:
                        out.append(http1.write_last_chunk(messages.trailers(event.trailers)))
                    await self._write(b"".join(out))
                    return keep
            events = []
            await self._write(b"".join(out))

    async def _write(self, data: bytes) -> None:
        if data:
            self._counts.down += len(data)
            await self._client.write(data)

    async def _next(self, server: Server) -> list[Event]:
        try:
            return await server.events()
        except (Malformed, OSError) as error:
            what = str(error) or "the server is silent"
            raise (Cut(what) if self.status else Failure(what)) from error

    def _framed(self, response: Response) -> bool:
        """Decide how the body of *response* goes to the client; return whether in chunks."""
        if response.informational:
            self._early += 1
            if self._early > MAX_EARLY:
                raise Failure(f"more than {MAX_EARLY} answers that are none")
            return False
        self.status = response.status
        framing = http1.framing(response, self._request)
        if framing.to_the_end:
            self.keep = False
        return framing.chunked

    async def _upgrade(
        self,
        server: Server,
        response: Response,
        events: list[Event],
        rest: Callable[[], Awaitable[bytes]],
    ) -> None:
        """Let client and server speak another protocol, whatever they say in it."""
        if self._request.upgrade != b"websocket":
            raise Failure("the server changed the protocol, which nobody asked it to")
        self.status, self.keep = 101, False
        self._client.half_open()
        server.channel.unread(b"".join(e.data for e in events if isinstance(e, Rest)))
        fields = messages.response_fields(response.fields)
        fields += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        await self._write(http1.write_response(101, response.reason, fields))
        self._client.unread(await rest())
        carried = PumpCounts()
        try:
            await tunnel(self._client, server.channel, lambda: None, carried)
        finally:
            self._counts.up += carried.received
            self._counts.down += carried.sent


def _ended(sender: "asyncio.Future[None]", server: Server) -> None:
    """End the exchange of a body that is malformed."""
    if not sender.cancelled() and sender.exception():
        server.close()
