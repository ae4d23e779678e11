"""One request of a visitor and its answer, piece by piece, with back-pressure both ways."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from atoll.errors import SandboxError, ServiceNotRespondingError
from atoll.host.pump import Channel, Counts, tunnel
from atoll.proxy import route
from atoll.proxy.upstream import Route, Server
from atoll.wire import http1
from atoll.wire.http1 import Data, End, Event, Fields, Malformed, Request, Response, Rest

SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS"})
"""Methods that may be sent a second time when the server hung up on a connection that was kept."""


class Cut(Exception):  # noqa: N818  # an end, not an error of ours
    """The answer cannot be completed: the visitor must see that it is cut."""


MAX_EARLY = 32
"""Informational answers (100, 103) that are passed on before the answer itself has to come."""


class Exchange:
    """A request that may pass, and its answer.

    Args:
        request: its head.
        fields: what the server inside gets.
        place: where it goes.
        visitor: the visitor's connection.
        body: the rest of the request: events up to `End`.
        host: the host name that the visitor used.
    """

    def __init__(
        self,
        request: Request,
        fields: Fields,
        place: Route,
        visitor: Channel,
        body: AsyncIterator[Event],
        host: str,
    ) -> None:
        self._request = request
        self._head = http1.write_request(request.method, route.path_of(request.target), fields)
        self._place = place
        self._visitor = visitor
        self._body = body
        self._host = host
        self.counts = Counts()
        self.status = 0
        self._early = 0
        self.keep = request.keep_alive
        """Whether the visitor's connection is good for another request."""

        self.keep_server = False
        self.server: Server | None = None
        """The connection to the server, if that is good for another request."""

    async def run(self, kept: Server | None, rest: Callable[[], Awaitable[bytes]]) -> None:
        """Do all of it.

        Args:
            kept: a connection of an earlier exchange.
            rest: what the visitor sent behind a head that asks for another protocol.

        Raises:
            SandboxError: there is no answer, and the visitor was sent nothing yet.
            Malformed: the body of the request is; the visitor was sent nothing yet.
            Cut: the visitor was sent a part.
            ConnectionError: the visitor is gone.
        """
        server, events = await self._asked(kept)
        self.server = server
        sender = self._sender(server) if self._request.body else None
        try:
            await self._answer(server, events, rest)
        except (SandboxError, Cut) as error:
            if sender and sender.done() and isinstance(fault := sender.exception(), Malformed):
                raise (Cut(str(fault)) if self.status else fault) from error
            raise
        finally:
            if sender:
                self._settle(sender)
            if not self.keep_server:
                server.close()
                self.server = None

    async def _asked(self, kept: Server | None) -> tuple[Server, list[Event]]:
        """Send the head; return the connection, and the first events where there is no body."""
        if kept and self._request.method in SAFE and not self._request.body and kept.usable:
            with suppress(ConnectionError, Malformed):
                return await self._ask(kept)
            if kept.answered:
                raise _bad("the server hung up in the middle of its answer")
        if kept:
            kept.close()
        try:
            return await self._ask(await Server.connect(self._place))
        except (ConnectionError, Malformed) as error:
            raise _bad(str(error)) from error

    async def _ask(self, server: Server) -> tuple[Server, list[Event]]:
        server.expect(self._request.method)
        server.answered = 0
        try:
            await server.channel.write(self._head)
            server.channel.acknowledge_quickly()
            if self._request.body:
                return server, []
            with self._place.waiting():
                return server, await server.events()
        except BaseException:
            server.close()
            raise

    # The request's body

    def _sender(self, server: Server) -> "asyncio.Future[None]":
        """Begin to send the body; one that is malformed ends the exchange."""

        def ended(sender: "asyncio.Future[None]") -> None:
            if not sender.cancelled() and sender.exception():
                server.close()

        sender = asyncio.ensure_future(self._send_body(server))
        sender.add_done_callback(ended)
        return sender

    async def _send_body(self, server: Server) -> None:
        """Send it; a server that hangs up may have answered already, so that is no failure."""
        chunked = self._request.chunked
        async for event in self._body:
            if isinstance(event, Data):
                self.counts.received += len(event.data)
                self._place.touch()
                data = http1.write_chunk(event.data) if chunked else event.data
                with suppress(ConnectionError):
                    await server.channel.write(data)
            elif isinstance(event, End) and chunked:
                trailers = route.response_fields(event.trailers, self._host)
                with suppress(ConnectionError):
                    await server.channel.write(http1.write_last_chunk(trailers))

    def _settle(self, sender: "asyncio.Future[None]") -> None:
        if not sender.done():  # answered before all of the request was read
            sender.cancel()
            self.keep = self.keep_server = False
        elif sender.cancelled() or sender.exception():
            self.keep = self.keep_server = False

    # The answer

    async def _answer(
        self, server: Server, events: list[Event], rest: Callable[[], Awaitable[bytes]]
    ) -> None:
        chunked = False
        while True:
            if not events:
                events = await self._next(server)
            out: list[bytes] = []
            for event in events:
                if isinstance(event, Response):
                    if event.status == 101:
                        await self._upgrade(server, event, events, rest)
                        return
                    chunked = self._framed(event)
                    fields = route.response_fields(event.fields, self._host)
                    head = http1.relayed(
                        event, self._request, fields, chunked=chunked, keep=self.keep
                    )
                    out.append(head)
                elif isinstance(event, Data):
                    self.counts.sent += len(event.data)
                    out.append(http1.write_chunk(event.data) if chunked else event.data)
                elif isinstance(event, End) and self.status:
                    if chunked:
                        trailers = route.response_fields(event.trailers, self._host)
                        out.append(http1.write_last_chunk(trailers))
                    await self._visitor.write(b"".join(out))
                    return
            self._place.touch()
            if out:
                await self._visitor.write(out[0] if len(out) == 1 else b"".join(out))
            events = []

    async def _next(self, server: Server) -> list[Event]:
        try:
            if self.status:
                return await server.events()
            with self._place.waiting():
                return await server.events()
        except (Malformed, ConnectionError) as error:
            self.keep_server = False
            if self.status:
                raise Cut(str(error)) from error
            raise _bad(str(error)) from error

    def _framed(self, response: Response) -> bool:
        """Decide how the body of *response* goes to the visitor; return whether in chunks."""
        if response.informational:
            self._early += 1
            if self._early > MAX_EARLY:
                self.keep_server = False
                raise _bad(f"more than {MAX_EARLY} answers that are none")
            return False
        self.status = response.status
        self.keep_server = response.keep_alive
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
        """Let the visitor and the server speak another protocol, whatever they say in it."""
        if self._request.upgrade != b"websocket":
            raise _bad("the server changed the protocol, which nobody asked it to")
        self.status, self.keep, self.keep_server = 101, False, False
        self._visitor.half_open()
        server.channel.unread(b"".join(e.data for e in events if isinstance(e, Rest)))
        fields = route.response_fields(response.fields, self._host)
        fields += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        await self._visitor.write(http1.write_response(101, response.reason, fields))
        self._visitor.unread(await rest())
        await tunnel(self._visitor, server.channel, self._place.touch, self.counts)


def _bad(reason: str) -> ServiceNotRespondingError:
    return ServiceNotRespondingError(
        "the server in the sandbox gave no proper answer",
        context={"reason": reason},
        suggestion="look at its log; it has to speak HTTP/1.1",
    )
