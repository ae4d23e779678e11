"""The requests of one connection: each decided by itself, whatever was decided before it.

A connection that stays open does not stay with one host: the second request may name another, and a
policy may have changed in between.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple

from atoll.host.budget import Share
from atoll.host.messages import Incoming
from atoll.host.pump import Channel, Deadline
from atoll.network import hosts
from atoll.network.gateway import calls, held, injection, messages
from atoll.network.gateway.forwarding import Cut, Failure, Forwarding, Place, Server
from atoll.network.gateway.messages import REFUSED
from atoll.network.gateway.protocol import (
    Answered,
    Call,
    Decision,
    Forward,
    HandlerAnswer,
    Unanswered,
)
from atoll.network.gateway.sandbox import Sandbox
from atoll.network.gateway.shared import Shared
from atoll.network.gateway.tunnel import Counts
from atoll.network.policy import Handler, Outbound, Verdict
from atoll.wire import http1
from atoll.wire.http1 import Data, End, Event, Fields, Http2, Malformed, Request

IDLE = 120.0
"""Seconds between two requests."""

HEAD_TIME = 15.0
"""Seconds that a head may take, once it has begun."""

LINGER = 5.0
"""Seconds that a client may go on sending a body which is refused: if it were closed on, its kernel
would forget our answer."""

HANDLER_FAILED = "the handler failed"
NOT_REACHED = "the handler sent it to where it is not answered"
"""What is told inside of a handler's misfortune: the reason may have what the sandbox is not to see."""


class Whence(NamedTuple):
    """The connection that requests come by.

    Attributes:
        address: where it was going.
        port: likewise.
        names: names that the sandbox was given the address for.
        server_name: SNI of the TLS around the requests; None: there is none.
    """

    address: str
    port: int
    names: tuple[str, ...]
    server_name: str | None


class _Done(NamedTuple):
    """What came of a request: for the log, and whether another may follow."""

    verdict: str
    rule: str
    status: int
    keep: bool = False


class Requests:
    """Serves one connection.

    Args:
        shared: of the gateway.
        sandbox: whose it is.
        channel: the client's side.
        whence: of the connection.
    """

    def __init__(self, shared: Shared, sandbox: Sandbox, channel: Channel, whence: Whence) -> None:
        self._shared = shared
        self._sandbox = sandbox
        self._channel = channel
        self._whence = whence
        self._incoming = Incoming(channel, lambda: ConnectionResetError("the client hung up"))
        self._kept: Server | None = None
        self._counts = Counts()
        self._late = False
        self._unread = False  # a body that was refused
        self._asking: asyncio.Future[HandlerAnswer] | None = None
        self.outbound: Outbound | None = None
        """What the request under way was let out for."""

    async def serve(self) -> None:
        """Serve all requests; raise nothing but `asyncio.CancelledError`."""
        task = asyncio.current_task()
        deadline = Deadline(lambda: self._too_late(task))
        try:
            while request := await self._next(deadline):
                async with self._sandbox.turns.taken():
                    keep = await self._one(request)
                if not keep:
                    break
        except Malformed as error:
            await self._malformed(error)
            await self._linger()
        except (OSError, Cut):
            self._channel.abort()
        except asyncio.CancelledError:
            self._channel.abort()
            if not self._late:
                raise
        finally:
            deadline.cancel()
            if self._kept:
                self._kept.close()
            self._channel.close()

    def _too_late(self, task: "asyncio.Task[None] | None") -> None:
        self._late = True
        if task:
            task.cancel()

    def client_gone(self) -> None:
        """The client has hung up: a handler's answer is of no more use."""
        if self._asking:
            self._asking.cancel()

    # Reading

    async def _next(self, deadline: Deadline) -> Request | None:
        """Return the next head; None: there is none."""
        self.outbound = None
        if not self._incoming.begun:
            deadline.set(IDLE)
            data = await self._channel.read()
            if not data:
                return None
            self._incoming.feed(data)
        deadline.set(HEAD_TIME)
        request = await self._incoming.head()
        deadline.clear()
        return request

    # Deciding

    async def _one(self, request: Request) -> bool:
        """Serve *request*; return whether another may follow."""
        begun, self._counts, self._unread = time.time(), Counts(), False
        host, done = messages.host(request), None
        try:
            target = messages.path(request)
            verdict = self._decided(host)
            if verdict.action == "refuse":
                done = await self._refuse(request, verdict.rule)
            elif verdict.action == "handle" and verdict.handler:
                done = await self._handle(request, target, verdict, verdict.handler)
            else:
                done = await self._allow(request, target, verdict)
        except Malformed as error:
            done = _Done("refused", f"malformed: {error}", error.status)
            raise
        finally:
            self._note(request, host, begun, done or _Done("failed", "the connection was cut", 0))
        if done.keep and not request.body:
            await self._incoming.go_on(request)
        if self._unread and not done.keep:
            await self._linger()
        return done.keep

    async def _linger(self) -> None:
        """Take what the client sends still, and forget it."""
        if self._whence.server_name is None:
            self._channel.write_end()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while await self._channel.read():
                    pass

    def _decided(self, host: str) -> Verdict:
        address, server_name = self._whence.address, self._whence.server_name
        names = dict.fromkeys((*self._whence.names, *self._sandbox.names(address)))
        self.outbound = Outbound(
            protocol="http" if server_name is None else "https",
            host=host,
            sni=server_name or "",
            address=address,
            port=self._whence.port,
            names=tuple(names),
        )
        return self._sandbox.decide(self.outbound)

    # Doing

    async def _refuse(self, request: Request, rule: str) -> _Done:
        return await self._answer_of_ours(request, REFUSED, "refused", rule)

    async def _answer_of_ours(
        self, request: Request, status: int, verdict: str, rule: str, told: str = ""
    ) -> _Done:
        """Answer with *told* where *rule*, which the log has, is nothing for the sandbox."""
        head_only = request.method == b"HEAD"
        await self._channel.write(messages.refusal(status, told or rule, head_only=head_only))
        self._unread = request.body
        return _Done(verdict, rule, status)

    async def _allow(self, request: Request, target: bytes, verdict: Verdict) -> _Done:
        encrypted = self._whence.server_name is not None
        place = Place(self._whence.address, self._whence.port, verdict.host, encrypted)
        fields = messages.request_fields(request, verdict.host)
        return await self._forward(request, request.method, target, fields, place, verdict.rule)

    async def _forward(
        self,
        request: Request,
        method: bytes,
        target: bytes,
        fields: Fields,
        place: Place,
        rule: str,
        body: bytes | None = None,
        told: str = "",
    ) -> _Done:
        """Send a request out; *body* replaces its own, which was read; *told*: see `_answer_of_ours`."""
        try:
            filled = injection.fill(
                target,
                fields,
                place.host,
                self._sandbox.policy.secrets,
                encrypted=place.encrypted,
            )
        except injection.Misplaced as error:
            return await self._answer_of_ours(request, REFUSED, "refused", str(error), told)
        forwarding = await self._forwarding(request, method, filled, body)
        try:
            await forwarding.run(self._shared.dialer, place, self._kept, self._incoming.rest)
        except Failure as error:
            return await self._answer_of_ours(request, 502, "failed", str(error), told)
        finally:
            self._kept = forwarding.server
        return _Done("allowed", rule, forwarding.status, forwarding.keep)

    async def _forwarding(
        self, request: Request, method: bytes, filled: injection.Filled, body: bytes | None
    ) -> Forwarding:
        if body is None:
            fields = messages.framed(filled.fields, request)
            events = self._incoming.body() if request.body else None
            if events is None:
                await self._incoming.event()  # its end
            head = http1.write_request(method, filled.target, fields)
            return Forwarding(
                request, head, events, self._channel, self._counts, chunked=request.chunked
            )
        plain = request._replace(method=method, upgrade=None)
        fields = [*filled.fields, (b"Content-Length", b"%d" % len(body))]
        head = http1.write_request(method, filled.target, fields if body else filled.fields)
        events = _whole(body) if body else None
        return Forwarding(plain, head, events, self._channel, self._counts, chunked=False)

    # Handlers

    async def _handle(
        self, request: Request, target: bytes, verdict: Verdict, handler: Handler
    ) -> _Done:
        with self._sandbox.bodies.share() as share:
            try:
                return await self._held(request, target, verdict, handler, share)
            except held.Refused as error:
                return await self._answer_of_ours(request, error.status, "refused", str(error))

    async def _held(
        self, request: Request, target: bytes, verdict: Verdict, handler: Handler, share: Share
    ) -> _Done:
        """Have a request handled whose bodies *share* is for."""
        held.expect(request, share)
        if request.get(b"expect"):
            await self._channel.write(http1.write_response(100, b"Continue", []))
        body = await held.read(self._incoming, share)
        self._counts.up = len(body)
        encrypted = self._whence.server_name is not None
        call = calls.call(
            self._sandbox.policy, handler, request, target, verdict.host, body, encrypted=encrypted
        )
        answer = await self._asked(call)
        if not isinstance(answer, Unanswered):
            held.add(share, len(answer.body or b""))
        return await self._handled(request, verdict, answer, body)

    async def _asked(self, call: Call) -> HandlerAnswer:
        if self._channel.ended:
            raise ConnectionResetError("the client hung up")
        self._asking = asyncio.ensure_future(self._sandbox.in_turn(self._shared.ask_handler, call))
        try:
            await asyncio.wait([self._asking])
            if self._asking.cancelled():
                raise ConnectionResetError("the client hung up")
            return self._asking.result()
        finally:
            self._asking.cancel()
            self._asking = None

    async def _handled(
        self, request: Request, verdict: Verdict, answer: HandlerAnswer, body: bytes
    ) -> _Done:
        try:
            if isinstance(answer, Answered):
                data = calls.answer(answer, request)
                self._counts.down = len(data)
                await self._channel.write(data)
                return _Done("handled", verdict.rule, answer.status, request.keep_alive)
            if isinstance(answer, Forward):
                return await self._let_out(request, verdict, calls.forwarded(answer, body))
            why = answer.reason
        except calls.Unusable as error:
            why = str(error)
        rule = f"{verdict.rule}: {why}"
        return await self._answer_of_ours(request, REFUSED, "failed", rule, HANDLER_FAILED)

    async def _let_out(self, request: Request, verdict: Verdict, wanted: calls.Forwarded) -> _Done:
        """Send out what a handler made of the request."""
        try:
            address = await self._shared.find(self._sandbox.policy, wanted.host)
        except OSError as error:
            why = f"{wanted.host}: {error}"
            return await self._answer_of_ours(request, 502, "failed", why, NOT_REACHED)
        place = Place(address, wanted.port, wanted.host, wanted.encrypted)
        done = await self._forward(
            request,
            wanted.method,
            wanted.target,
            wanted.fields,
            place,
            verdict.rule,
            wanted.body,
            told=NOT_REACHED,
        )
        return done._replace(verdict="handled") if done.verdict == "allowed" else done

    # The log

    async def _malformed(self, error: Malformed) -> None:
        """Answer what is no request; it was written down if it had a head."""
        answer = messages.refusal(error.status, str(error), head_only=False)
        if isinstance(error, Http2):
            answer = messages.refusal_of_http2(f"{error} is not spoken here, HTTP/1.1 is")
        if self.outbound is None:
            self._note(None, "", time.time(), _Done("refused", f"malformed: {error}", error.status))
        try:
            await self._channel.write(answer)
        except OSError:
            self._channel.abort()

    def _note(self, request: Request | None, host: str, begun: float, done: _Done) -> None:
        path = request.target.partition(b"?")[0].decode("latin-1") if request else ""
        self._sandbox.note(
            Decision(
                time=begun,
                protocol="http" if self._whence.server_name is None else "https",
                host=hosts.split_port(host)[:300],
                address=self._whence.address,
                port=self._whence.port,
                verdict=done.verdict,
                rule=done.rule,
                method=request.method.decode() if request else "",
                path=path[:500],
                status=done.status,
                bytes_up=self._counts.up,
                bytes_down=self._counts.down,
                ms=round((time.time() - begun) * 1_000, 1),
            )
        )


async def _whole(body: bytes) -> AsyncIterator[Event]:
    yield Data(body)
    yield End([])
