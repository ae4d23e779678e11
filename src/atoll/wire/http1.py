"""HTTP/1.1 without I/O: bytes in, events out; heads and pieces of bodies out as bytes.

The parser is llhttp (Node's), strict as it comes: it refuses what request smuggling lives on, and
what it lets pass is refused here: several Hosts, codings other than ``chunked``, HTTP/2 lines,
CONNECT. Heads are never forwarded as they came but written anew from what was understood, so the
server inside cannot understand them otherwise than this proxy did.
"""

import re
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, TypeAlias

import httptools

MAX_HEAD = 64 * 1024
"""Bytes of one head, of trailers, or of a chunk's extensions: as much as any server takes."""

CHUNKED = 1 << 12
"""Bytes of a body in chunks that are read at once: nobody knows where it ends, and what follows."""

MAX_FIELDS = 500
"""Fields of one head, or of trailers: each takes a hundred bytes, however short it is."""

Field: TypeAlias = tuple[bytes, bytes]
Fields: TypeAlias = list[Field]
Index: TypeAlias = dict[bytes, list[bytes]]
"""Values by lower-case name: looked up several times for every request."""

_BODILESS = frozenset({204, 304})
_REASON = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


class Malformed(Exception):  # noqa: N818  # a state of the message, like the parser's words
    """What came is not a message that can be forwarded. `status` is for a visitor."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Http2(Malformed):
    """It is the beginning of HTTP/2, by a client that knows no other (RFC 9113, 3.4)."""

    def __init__(self) -> None:
        super().__init__("HTTP/2 without TLS", 505)


class Truncated(Malformed):
    """The connection ended in the middle of a message."""


class Request(NamedTuple):
    """Head of a request. `body`: one follows; `upgrade`: the protocol it asks for."""

    method: bytes
    target: bytes
    version: str
    fields: Fields
    lookup: "Index"
    keep_alive: bool
    chunked: bool
    body: bool
    upgrade: bytes | None = None

    def get(self, name: bytes) -> list[bytes]:
        """Return every value of *name* (lower case)."""
        return self.lookup.get(name, [])


class Response(NamedTuple):
    """Head of an answer. `length`: bytes of the body; None: its end is told otherwise."""

    status: int
    reason: bytes
    version: str
    fields: Fields
    keep_alive: bool
    length: int | None

    @property
    def informational(self) -> bool:
        """Whether another head follows."""
        return 100 <= self.status < 200 and self.status != 101


class Data(NamedTuple):
    """A piece of a body."""

    data: bytes


class End(NamedTuple):
    """The message is complete."""

    trailers: Fields


class Rest(NamedTuple):
    """Bytes behind a head that asks for, or grants, another protocol."""

    data: bytes


Event: TypeAlias = Request | Response | Data | End | Rest


class _Reader:
    """What both directions have in common. The parser calls the ``on_`` methods."""

    _new_parser: ClassVar[Any]  # a class of the parser

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._fields: Fields = []
        self._first = b""  # request target or reason
        self._size = 0  # of the head so far
        self._pending = 0  # bytes since the last event: what is not whole yet, the parser keeps
        self._in_body = False
        self._parser = self._new_parser(self)

    def feed(self, data: bytes) -> list[Event]:
        """Return what *data* completes.

        Raises:
            Malformed: it is no message, or one that is refused.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._events.append(Rest(data[upgrade.args[0] :]))
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            raise cause if isinstance(cause, Malformed) else Malformed(str(error)) from error
        except httptools.HttpParserError as error:
            if str(error).startswith("Pause on PRI"):
                raise Http2 from error
            raise Malformed(str(error)) from error
        events, self._events = self._events, []
        self._pending = 0 if events else self._pending + len(data)
        if self._pending > MAX_HEAD:
            raise Malformed("head too large", 431)
        return events

    def on_message_begin(self) -> None:
        """Begin a message."""
        self._fields, self._first, self._size, self._in_body = [], b"", 0, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field, of the head or of the trailers."""
        self._size += len(name) + len(value) + 4
        if self._size > MAX_HEAD or len(self._fields) == MAX_FIELDS:
            raise Malformed("head too large", 431)
        self._fields.append((name, value))

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._events.append(Data(data))

    def on_message_complete(self) -> None:
        """End the message."""
        self._events.append(End(self._fields if self._in_body else []))

    def _headed(self) -> Fields:
        """Return the fields of the head; those that follow are trailers."""
        fields, self._fields, self._size, self._in_body = self._fields, [], 0, True
        return fields


class RequestReader(_Reader):
    """Reads the requests of one connection."""

    _new_parser = httptools.HttpRequestParser

    def __init__(self) -> None:
        super().__init__()
        self._least = 0
        self.left = 0
        """Bytes of the body that may be read at once: all where its head says how many it has."""

    @property
    def begun(self) -> bool:
        """Whether a part of a message is known that is not told yet."""
        return self._pending > 0

    def resume(self) -> None:
        """Go on reading requests after a `Rest` that is not to be another protocol."""
        self._parser = self._new_parser(self)

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self._first += url
        if len(self._first) > MAX_HEAD:
            raise Malformed("target too long", 414)

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self.left = max(self._least, self.left - len(data))
        super().on_body(data)

    def on_message_complete(self) -> None:
        """End the request."""
        self.left = 0
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        """Tell the head.

        Raises:
            Malformed: it can be understood in more than one way.
        """
        fields, version = self._headed(), self._parser.get_http_version()
        index = indexed(fields)
        if version not in {"1.0", "1.1"}:
            raise Malformed(f"HTTP/{version}", 505)
        method = self._parser.get_method()
        if method == b"CONNECT":
            raise Malformed("CONNECT", 405)
        codings = index.get(b"transfer-encoding")
        if codings and (version == "1.0" or [c.lower() for c in codings] != [b"chunked"]):
            raise Malformed("Transfer-Encoding other than chunked", 501)
        hosts = index.get(b"host", [])
        if len(hosts) > 1 or (version == "1.1" and not hosts):
            raise Malformed("one Host is needed")
        lengths = index.get(b"content-length", [b"0"])
        self._least = CHUNKED if codings else 0
        self.left = self._least or int(lengths[0])
        upgrade = b", ".join(index.get(b"upgrade", [])).lower()
        self._events.append(
            Request(
                method=method,
                target=self._first,
                version=version,
                fields=fields,
                lookup=index,
                keep_alive=self._parser.should_keep_alive(),
                chunked=bool(codings),
                body=bool(codings) or lengths != [b"0"],
                upgrade=upgrade if self._parser.should_upgrade() else None,
            )
        )


class ResponseReader(_Reader):
    """Reads the answers of one connection to a server. Call `expect` before each request."""

    def __init__(self) -> None:
        super().__init__()
        self._head_only = False
        self._told = False  # of an answer without a body, whatever its head says
        self._until_end = False
        self.spoiled = False
        """The server sent more than it may: the connection is of no more use."""

    _new_parser = httptools.HttpResponseParser

    def expect(self, method: bytes) -> None:
        """Read the answer to a request of *method*."""
        if self._head_only:
            self._parser = self._new_parser(self)  # the last one waits for a body
        self._head_only, self._told, self._until_end = method == b"HEAD", False, False

    def on_status(self, reason: bytes) -> None:
        """Take a part of the reason."""
        self._first += reason

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body; there is none after an answer to HEAD."""
        if self._told:
            self.spoiled = True
            return
        super().on_body(data)

    def on_message_complete(self) -> None:
        """End the answer, unless that was told with its head."""
        self._until_end = False
        if not self._told:
            super().on_message_complete()

    def on_headers_complete(self) -> None:
        """Tell the head.

        Raises:
            Malformed: it cannot be forwarded.
        """
        fields, status = self._headed(), self._parser.get_status_code()
        if self._told:
            raise Malformed("an answer that nobody asked for", 502)
        if not 100 <= status <= 599 or not _REASON.fullmatch(self._first):
            raise Malformed("malformed status line", 502)
        index = indexed(fields)
        codings = index.get(b"transfer-encoding")
        if codings and [coding.lower() for coding in codings] != [b"chunked"]:
            raise Malformed("Transfer-Encoding other than chunked", 502)
        lengths = index.get(b"content-length")
        none = status < 200 or status in _BODILESS or self._head_only
        self._until_end = not (none or codings or lengths)
        self._events.append(
            Response(
                status=status,
                reason=self._first,
                version=self._parser.get_http_version(),
                fields=fields,
                keep_alive=self._parser.should_keep_alive() and not self._until_end,
                length=0 if none else int(lengths[0]) if lengths else None,
            )
        )
        if self._head_only and status >= 200:
            self._told = True
            self._events.append(End([]))

    def end(self) -> list[Event]:
        """Return what the end of the connection completes.

        Raises:
            Truncated: the answer was not complete.
        """
        if not self._until_end:
            raise Truncated("the server hung up before its answer was complete", 502)
        self._until_end = False
        return [End([])]


def indexed(fields: Fields) -> Index:
    """Return the values of *fields* by lower-case name."""
    found: Index = {}
    for name, value in fields:
        found.setdefault(name.lower(), []).append(value)
    return found


def values(fields: Iterable[Field], name: bytes) -> list[bytes]:
    """Return every value of *name* (lower case)."""
    return [value for known, value in fields if known.lower() == name]


def write_request(method: bytes, target: bytes, fields: Iterable[Field]) -> bytes:
    """Return the head of a request."""
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, _written(fields))


def write_response(status: int, reason: bytes, fields: Iterable[Field]) -> bytes:
    """Return the head of an answer."""
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, reason, _written(fields))


class Framing(NamedTuple):
    """How a body goes on: in chunks, up to the end of the connection, or as it is."""

    chunked: bool = False
    to_the_end: bool = False


def framing(response: Response, request: Request) -> Framing:
    """Return how the body of *response* goes on to who sent *request*."""
    if response.length is not None or request.method == b"HEAD":
        return Framing()
    old = request.version == "1.0"
    return Framing(chunked=not old, to_the_end=old)


def relayed(
    response: Response, request: Request, fields: list[Field], *, chunked: bool, keep: bool
) -> bytes:
    """Return the head of *response* with *fields*, as it goes on to who sent *request*.

    Empty where that one knows no informational answers.

    Args:
        chunked: whether its body is sent in chunks.
        keep: whether the connection is good for another request.
    """
    old = request.version == "1.0"
    if response.informational:
        return b"" if old else write_response(response.status, response.reason, fields)
    if chunked:
        fields = [*fields, (b"Transfer-Encoding", b"chunked")]
    if not keep:
        fields = [*fields, (b"Connection", b"close")]
    elif old:
        fields = [*fields, (b"Connection", b"keep-alive")]
    return write_response(response.status, response.reason, fields)


def _written(fields: Iterable[Field]) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in fields])


def write_chunk(data: bytes) -> bytes:
    """Return *data*, which is not empty, as a chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def write_last_chunk(trailers: Iterable[Field]) -> bytes:
    """Return the end of a chunked body."""
    return b"0\r\n%b\r\n" % _written(trailers)
