"""Visitors' connections: request by request to where its host name says, until one side ends."""

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from atoll.errors import (
    ContainerUnavailableError,
    InvalidTokenError,
    SandboxError,
    UnauthorizedError,
    ValidationFailedError,
)
from atoll.host.messages import Incoming
from atoll.host.pump import Channel, Deadline
from atoll.proxy import access, refusal, route, upstream
from atoll.proxy.access import Verdict
from atoll.proxy.exchange import Cut, Exchange
from atoll.proxy.guesses import Guesses
from atoll.proxy.route import Visitor
from atoll.proxy.upstream import Route, Routes, Server
from atoll.wire import http1
from atoll.wire.http1 import Malformed, Request, Truncated
from atoll.wire.ports import Visit
from atoll.wire.preview import Target

log = structlog.get_logger(__name__)

IDLE = 75.0
"""Seconds between two requests of one connection, as the API's own connections have."""

HEAD_TIME = 20.0
"""Seconds from the first byte of a head to its end."""

Elsewhere = Callable[[asyncio.Transport, bytes], None]


@dataclass
class Site:
    """What all connections share.

    Args:
        routes: the exposed ports.
        domains: those whose names below are previews; more can be added at any time.
        trusted: whether an address is a proxy whose word about visitors counts.
        limit: connections at once.
    """

    routes: Routes
    domains: frozenset[str]
    trusted: Callable[[str], bool]
    limit: int
    guesses: Guesses = field(default_factory=Guesses)
    connections: "set[Connection]" = field(default_factory=set)

    async def close(self) -> None:
        """Cut all connections."""
        tasks = [connection.cut() for connection in list(self.connections)]
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class Entrance:
    """By which way a connection came in.

    Args:
        visitor: the other end.
        trusted: whether its word about visitors counts.
        domains: domains whose names below are previews; None: any.
        namespaces: those that may be visited; None: all.
        elsewhere: takes the connection when a request is for no preview; None: it is refused.
        place: the one preview that all requests are for, whatever host they name.
    """

    visitor: Visitor
    trusted: Callable[[str], bool]
    domains: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    elsewhere: Elsewhere | None = None
    place: Route | None = None


class Connection:
    """One visitor's connection. It serves itself from the moment that it is made.

    Args:
        site: what all connections share.
        entrance: how it came in.
        transport: the connection.
        data: what was read of it already.
    """

    def __init__(
        self, site: Site, entrance: Entrance, transport: asyncio.Transport, data: bytes = b""
    ) -> None:
        self._site = site
        self._entrance = entrance
        self._channel = Channel(self._gone)
        self._channel.connection_made(transport)
        transport.set_protocol(self._channel)
        if data:
            self._channel.data_received(data)
        self._incoming = Incoming(self._channel, lambda: Truncated("the visitor hung up"))
        self._busy = False
        self._late = False
        self._deadline = Deadline(self._too_late)
        self._known: tuple[bytes, Target | None] = (b"", None)
        self._place: Route | None = None
        self._hold = ExitStack()
        self._server: Server | None = None
        site.connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _gone(self) -> None:
        """The visitor has hung up: whatever is done for it is of no more use."""
        if self._busy:
            self._task.cancel()

    def _too_late(self) -> None:
        self._late = True
        self._task.cancel()

    def cut(self) -> "asyncio.Task[None]":
        """End the connection at once; one without a request under way in an orderly manner."""
        if self._busy:
            self._channel.abort()
        else:
            self._channel.close()
        self._task.cancel()
        return self._task

    async def ended(self) -> None:
        """Wait for its end; whoever is cancelled meanwhile ends it."""
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            await asyncio.wait([self.cut()])
            raise

    async def _run(self) -> None:
        try:
            await self._serve()
        except (ConnectionError, Cut, Truncated):
            self._channel.abort()
        except asyncio.CancelledError:
            if self._late:
                self._channel.close()
            elif self._busy:
                self._channel.abort()
        except Exception as error:
            log.error("preview failed", exc_info=error)
            self._channel.abort()
        finally:
            self._deadline.cancel()
            self._site.connections.discard(self)
            self._leave()

    def _leave(self) -> None:
        if self._server:
            self._server.close()
            self._server = None
        self._hold.close()
        self._place = None

    async def _serve(self) -> None:
        try:
            while (request := await self._next()) is not None:
                self._busy = True
                keep = await self._serve_one(request)
                self._busy = False
                if not keep or self._channel.ended:
                    break
            else:
                return
        except Malformed as error:
            await self._refuse_malformed(error)
        self._channel.close()

    # Requests

    async def _next(self) -> Request | None:
        """Return the next head; None: there is none, or it is not for us."""
        if not self._incoming.begun and not await self._read_head():
            return None
        self._deadline.set(HEAD_TIME)
        request = await self._incoming.head()
        self._deadline.clear()
        return request

    async def _read_head(self) -> bool:
        """Read until a whole head is there; return whether it is for us."""
        self._deadline.set(IDLE)
        data = (await self._channel.read()).lstrip(b"\r\n")
        if not data and self._channel.ended:
            return False
        if b"\r\n\r\n" not in data:
            self._deadline.set(HEAD_TIME)
        while b"\r\n\r\n" not in data and len(data) <= http1.MAX_HEAD:
            more = await self._channel.read()
            if not more:
                return False
            data += more
        head = data.partition(b"\r\n\r\n")[0]
        elsewhere = self._entrance.elsewhere
        if elsewhere and not route.sniff(head, self._entrance.domains or ()):
            self._deadline.clear()
            self._leave()
            transport, left = self._channel.hand_over()
            elsewhere(transport, data + left)
            return False
        self._incoming.feed(data)
        return True

    # Answers

    async def _serve_one(self, request: Request) -> bool:
        """Answer *request*; return whether the connection is good for another one."""
        if not request.body:
            await self._incoming.event()  # its end
        named = route.authority(request)
        visitor = route.visitor_of(self._entrance.visitor, request, self._entrance.trusted)
        began, place, exchange, status = time.monotonic(), None, None, 0
        try:
            place = self._find(named, visitor)
            if entered := await self._entered(place, request, visitor):
                await self._channel.write(entered)
                status = 303
                return request.keep_alive and not request.body
            self._admit(place, request)
            self._move(place)
            exchange = self._exchange(request, place, visitor, named)
            try:
                await exchange.run(self._server, self._incoming.rest)
            finally:
                self._server = exchange.server
        except SandboxError as error:
            status = error.wire_status
            return await self._refuse(error, request)
        finally:
            if place:
                self._log(place, request, visitor, began, exchange, status)
        if exchange.keep and not request.body:
            await self._incoming.go_on(request)
        return exchange.keep

    def _find(self, named: bytes, visitor: Visitor) -> Route:
        if place := self._entrance.place:
            place.check()
            return place
        if named != self._known[0]:
            self._known = named, route.target_of(named, self._entrance.domains)
        target = self._known[1]
        if target is None:
            raise _misdirected()
        self._site.guesses.check(visitor.address, target.sandbox_id)
        try:
            return self._site.routes.find(target, self._entrance.namespaces)
        except InvalidTokenError:
            self._missed(visitor, target)
            raise

    def _missed(self, visitor: Visitor, target: Target) -> None:
        self._site.guesses.miss(visitor.address, target.sandbox_id)

    async def _entered(self, place: Route, request: Request, visitor: Visitor) -> bytes | None:
        """Return the answer to a one-time link; None: it is none."""
        link = access.ENTER.fullmatch(route.path_of(request.target))
        if place.access.public or place.access.auth == "bearer" or not link:
            return None
        if request.method != b"GET" or not await place.enter(link[1].decode()):
            raise UnauthorizedError(
                "the link was used already, or its time is over", suggestion="ask for a new one"
            )
        cookie = access.new_cookie(place.access, secure=visitor.scheme == "https")
        return http1.write_response(303, b"See Other", [
            (b"Location", b"/"), (b"Set-Cookie", cookie), (b"Cache-Control", b"no-store"),
            (b"Referrer-Policy", b"no-referrer"), (b"Content-Length", b"0"),
            (b"Connection", b"keep-alive" if request.keep_alive else b"close"),
        ])  # fmt: skip

    def _admit(self, place: Route, request: Request) -> None:
        if access.judge(place.access, request.fields) is Verdict.REFUSE:
            raise UnauthorizedError(
                "this preview is private", suggestion="ask its owner for a link"
            )

    def _move(self, place: Route) -> None:
        """Stay connected to one place at a time: it can cut the connection, and counts it."""
        if place is self._place:
            return
        self._leave()
        self._hold.enter_context(place.connected(self._cut_by_place))
        self._place = place

    def _cut_by_place(self) -> None:
        self.cut()

    def _exchange(self, request: Request, place: Route, visitor: Visitor, named: bytes) -> Exchange:
        told = access.without_credentials(place.access, request)
        return Exchange(
            told,
            route.request_fields(told, visitor, place.port, place.sandbox_id, named),
            place,
            self._channel,
            self._incoming.body(),
            route.host_of(named),
        )

    def _log(
        self,
        place: Route,
        request: Request,
        visitor: Visitor,
        began: float,
        exchange: Exchange | None,
        status: int,
    ) -> None:
        place.visits.append(
            Visit(
                at=datetime.now(UTC),
                method=request.method.decode("ascii"),
                path=upstream.visit_path(route.path_of(request.target)),
                status=exchange.status if exchange and exchange.status else status,
                visitor=visitor.address,
                duration_ms=round((time.monotonic() - began) * 1000),
                received=exchange.counts.received if exchange else 0,
                sent=exchange.counts.sent if exchange else 0,
            )
        )

    # Refusals

    async def _refuse(self, error: SandboxError, request: Request) -> bool:
        keep = request.keep_alive and not request.body and error.wire_status != 421
        await self._channel.write(
            refusal.write(
                error,
                secrets.token_hex(8),
                request.fields,
                head_only=request.method == b"HEAD",
                close=not keep,
            )
        )
        if keep:
            await self._incoming.go_on(request)
        return keep

    async def _refuse_malformed(self, malformed: Malformed) -> None:
        error = ValidationFailedError(f"the request was refused: {malformed}")
        error.wire_status = malformed.status
        answer = refusal.write(error, secrets.token_hex(8), [], head_only=False, close=True)
        await self._channel.write(answer)


def _misdirected() -> SandboxError:
    error = ValidationFailedError("the request names no preview, or more than one")
    error.wire_status = 421
    return error


def full() -> SandboxError:
    """Return the error for a connection beyond the site's limit."""
    return ContainerUnavailableError(
        "the engine has too many connections", context={"reason": "capacity"}, retry_after=5.0
    )
