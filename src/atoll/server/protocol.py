"""HTTP/1.1 with limits that the server library lacks: on heads of requests, and on their time.

A connection that sends nothing, or its head byte by byte, holds a descriptor and a task; both end
here before anybody was asked for a key, and when there are too many connections those that wait
for a head make room. Heads that two servers could read differently are refused: behind a proxy one
of them would see a request that the other did not. Bodies have limits of their own, where they are
read.
"""

import asyncio
import secrets
import socket
from typing import Any, cast

import msgspec
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from atoll.errors import ContainerUnavailableError, SandboxError, ValidationFailedError
from atoll.host import unix
from atoll.server import shapes
from atoll.server.cork import Corked
from atoll.wire.operation import MAX_HEAD

log = structlog.get_logger(__name__)

HEAD_TIME = 20.0
"""Seconds from the connection, or from the first byte of a later request, to the end of a head;
also those that the rest of a body has once it was answered without being read."""


_LEFT = "the caller closed its side of the connection before the answer"
_STAY = "send the whole request, and close the connection when the answer has come"


class LimitedProtocol(HttpToolsProtocol):
    """One connection. The parser calls its methods; see `uvicorn`."""

    waiting: "dict[LimitedProtocol, None]"
    """Connections of the listener without a request under way, the longest waiting first."""

    stall: float | None = None
    """Seconds the other end may leave an answer unread; None: for ever."""

    _stalled: asyncio.TimerHandle | None = None
    _deadline: asyncio.TimerHandle | None = None
    _refused = False
    _head = 0
    """Bytes of the head as the parser told them."""

    _told = 0
    """How often the parser told of anything that is not a part of a head."""

    _kept = 0
    """Bytes since it last did: what is not whole yet, the parser keeps."""

    def connection_made(self, transport: Any) -> None:
        """Wait for the first head; where this is one connection too many, one has to go."""
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, Corked(transport, self.loop))
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family == socket.AF_UNIX:
            unix.enlarge_buffer(connection)
        self._expect()
        if self.limit_concurrency and len(self.connections) >= self.limit_concurrency:
            self._make_room()
        self.waiting[self] = None

    def _make_room(self) -> None:
        for longest in self.waiting:
            del self.waiting[longest]
            longest.transport.abort()
            self.connections.discard(longest)  # its end is told only later
            return
        full = ContainerUnavailableError(
            "the engine has too many connections", context={"reason": "capacity"}
        )
        self._refuse(full, 503)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self.waiting.pop(self, None)
        self._expected()
        self._read_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the other end to read: not for ever."""
        super().pause_writing()
        if self.stall is not None and self._stalled is None:
            self._stalled = self.loop.call_later(self.stall, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the other end has read."""
        self._read_on()
        super().resume_writing()

    def _read_on(self) -> None:
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None

    def data_received(self, data: bytes) -> None:
        """Parse *data*."""
        if self._refused:
            return
        told = self._told
        super().data_received(data)
        self._kept = self._kept + len(data) if self._told == told else 0
        if self._kept > MAX_HEAD:
            self._too_large()

    def eof_received(self) -> None:
        """Answer whoever will send no more but may read; after this the transport closes.

        A caller that has left and one that has only closed its sending side look the same, and for
        the first its command must end. So both have left; the second is told.
        """
        if self._answering or self._begun_head:
            self._refuse(ValidationFailedError(_LEFT, suggestion=_STAY), 400, whole=True)

    @property
    def _begun_head(self) -> bool:
        """Whether there is a part of a head that has no end."""
        return self._kept > 0

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._told += 1
        self._head = 0
        if self._deadline is None:
            self._expect()

    def on_url(self, url: bytes) -> None:
        """Take a part of the request line."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer."""
        self._count(len(name) + len(value) + len(b": \r\n"))
        if not self._refused:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End the head: the request starts, unless it was refused."""
        self._told += 1
        self._expected()
        if not self._refused and (problem := self._ambiguous()):
            self._refuse(ValidationFailedError(problem), 400)
        if not self._refused:
            self.waiting.pop(self, None)
            super().on_headers_complete()

    def _ambiguous(self) -> str | None:
        """Return why a proxy could read this head in another way than we do."""
        version = self.parser.get_http_version()
        hosts = [value for name, value in self.headers if name == b"host"]
        coding = [value for name, value in self.headers if name == b"transfer-encoding"]
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            return "a request has one Host"
        if coding and (version != "1.1" or [value.lower() for value in coding] != [b"chunked"]):
            return "the only transfer coding is chunked, of HTTP/1.1"
        if not self.url.startswith(b"/"):
            return "the target of a request is a path"
        return None

    def handle_websocket_upgrade(self) -> None:
        """Give the connection to the other protocol, unless its head was refused."""
        if not self._refused:
            super().handle_websocket_upgrade()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._told += 1
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._told += 1
        self._expected()
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """End the answer; what is left of the request is thrown away for a while."""
        unread = self.cycle.more_body
        super().on_response_complete()
        if unread and not self.transport.is_closing():
            self._expect()
        if not self._answering and not self.transport.is_closing():
            self.waiting[self] = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse what is no HTTP, in the form of every refusal."""
        self._refuse(ValidationFailedError("the request is not HTTP/1.1"), 400)

    def _expect(self) -> None:
        self._expected()
        self._deadline = self.loop.call_later(HEAD_TIME, self._too_slow)

    def _expected(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD:
            self._too_large()

    def _too_large(self) -> None:
        error = ValidationFailedError(
            f"request line and headers have more than {MAX_HEAD} bytes",
            context={"limit": MAX_HEAD},
        )
        self._refuse(error, 431)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _too_slow(self) -> None:
        if self._answering:  # the head of a request that was sent ahead
            self._expect()
        elif not self.transport.is_closing():
            self.transport.close()

    def _taken_back(self, *, whole: bool) -> bool:
        """Keep the request under way from answering, if there is one; return False if it may have.

        A refusal must not be read as the answer to another request than the one it is for: one
        that was sent ahead, or, unless *whole* requests are meant, one that had come to its end.
        """
        cycle = self.cycle
        if cycle is None or (cycle.response_complete and not cycle.more_body):
            return True
        if cycle.response_started or self.pipeline or not (cycle.more_body or whole):
            return False
        cycle.disconnected = True
        cycle.message_event.set()
        return True

    def _refuse(self, error: SandboxError, status: int, *, whole: bool = False) -> None:
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        if not self._taken_back(whole=whole):
            self.transport.close()
            return
        error.wire_status = status
        id = secrets.token_hex(8)
        log.info("head refused", request_id=id, status=status, reason=error.message)
        body = msgspec.json.encode(shapes.envelope(error, id), enc_hook=str)
        head = (
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            f"x-request-id: {id}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(STATUS_LINE[status] + head.encode() + body)
        self.transport.close()
