"""What both SDKs need for HTTP and WebSockets to a service inside; no I/O."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from atoll.errors import ValidationFailedError
from atoll.sdk._arguments import listed, wrong

Fields: TypeAlias = list[tuple[bytes, bytes]]

_DROPPED = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te",
    b"host",
})  # fmt: skip
_FRAMING = frozenset({b"content-length", b"expect"})
_SUBPROTOCOL = b"sec-websocket-protocol"
_PRIVATE = re.compile(r"x-forwarded-.+|forwarded")
_VALUE = re.compile(r"[^\x00\r\n\u0100-\U0010ffff]*")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Wanted(NamedTuple):
    """One request to a service."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: Any
    port: int | None


def wanted(
    request: Any,
    method: str | None,
    headers: Mapping[str, str] | None,
    body: Any,
    *,
    take_body: bool = True,
) -> Wanted:
    """Return what *request* asks for: a URL, a path, or a request of a Worker or web framework.

    What is given beside it comes first.

    Args:
        take_body: whether to take the body from *request*: it can be read once.

    Raises:
        ValidationFailedError: it is none of these.
    """
    url = request if isinstance(request, str) else str(getattr(request, "url", ""))
    if headers is not None and not isinstance(headers, Mapping):
        raise wrong("headers", "a mapping of names to values", headers)
    if method is not None and not isinstance(method, str):
        raise wrong("method", "text", method)
    fields = list((headers or {}).items())
    if not isinstance(request, str):
        method = method or getattr(request, "method", None)
        given = getattr(request, "headers", {})
        fields = _fields(given) if headers is None else fields
        if body is None and take_body and (method or "GET").upper() not in {"GET", "HEAD"}:
            body = body_of(request)
    parts = urlsplit(url)
    if not (url.startswith("/") or (parts.scheme in {"http", "https", "ws", "wss"})):
        raise ValidationFailedError(
            f"{url[:80]!r} is no address of a service",
            context={"field": "request"},
            suggestion="give a path like /health, a URL, or a request",
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    name = (method or "GET").upper()
    if not _TOKEN.fullmatch(name) or not target.isascii() or re.search(r"[\x00-\x20\x7f]", target):
        raise ValidationFailedError("the request is malformed", context={"field": "request"})
    local = parts.hostname in {None, "localhost", "127.0.0.1", "::1", "container"}
    return Wanted(name, target, fields, body, parts.port if local else None)


def _fields(headers: Any) -> list[tuple[str, str]]:
    """Return all fields of the headers of any of the known libraries."""
    if hasattr(headers, "multi_items"):
        return list(headers.multi_items())
    return list(headers.items())


def body_of(request: Any) -> Any:
    """Return the body of a request of any of the known libraries, as a stream where it has one."""
    stream = getattr(request, "stream", None)
    return stream() if callable(stream) else getattr(request, "body", None)


def port_of(given: int | None, found: Wanted, default: int | None = None) -> int:
    """Return the port that is asked for: given, else in the URL, else *default*.

    Raises:
        ValidationFailedError: none is.
    """
    port = given or found.port or default
    if port is None:
        raise ValidationFailedError(
            "no port is given", context={"field": "port"}, suggestion="write port=8080"
        )
    return port


def encoded(found: Wanted) -> Fields:
    """Return the header fields of a request as bytes; raise `ValidationFailedError` of others."""
    fields = []
    for name, value in found.headers:
        if not isinstance(name, str) or not isinstance(value, str):
            raise wrong("headers", "a mapping of texts", value if isinstance(name, str) else name)
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValidationFailedError(
                f"{name[:80]!r} is no name of a header, or its value has characters that no header "
                "can carry",
                context={"field": "headers"},
            )
        fields.append((name.encode(), value.encode("latin-1")))
    return fields


def fields_for(found: Wanted, port: int) -> Fields:
    """Return the fields of the request for the service, without those that frame it."""
    kept = [
        (name, value) for name, value in _end_to_end(encoded(found)) if name.lower() not in _FRAMING
    ]
    return [(b"Host", f"localhost:{port}".encode()), *kept]


def _end_to_end(fields: Fields) -> Fields:
    """Return the fields that are meant for more than one hop, without ``Host``."""
    named = {
        name.strip().lower()
        for key, value in fields
        if key.lower() == b"connection"
        for name in value.split(b",")
    } - {b"content-length"}
    return [(key, value) for key, value in fields if key.lower() not in _DROPPED | named]


def offered(given: Iterable[str], fields: Fields) -> list[str]:
    """Return the subprotocols to offer: what is given, else those of a request with *fields*.

    Raises:
        ValidationFailedError: something else than names of subprotocols is given.
    """
    named = listed("subprotocols", given)
    if not all(isinstance(name, str) and _TOKEN.fullmatch(name) for name in named):
        raise wrong("subprotocols", "a list of tokens", given)
    return named or subprotocols(fields)


def subprotocols(fields: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Return the subprotocols that a request offers."""
    named = [value.decode("latin-1") for key, value in fields if key.lower() == _SUBPROTOCOL]
    return [name.strip() for value in named for name in value.split(",") if name.strip()]


def without_handshake(fields: Fields) -> list[tuple[str, str]]:
    """Return the fields of a request for a WebSocket, without those of the handshake."""
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in fields
        if not name.lower().startswith(b"sec-websocket-") and name.lower() not in _FRAMING
    ]


def wants_websocket(fields: Fields) -> bool:
    """Whether a request asks for a WebSocket."""
    return any(
        name.lower() == b"upgrade" and value.lower() == b"websocket" for name, value in fields
    )


def has_body(fields: Fields) -> bool:
    """Whether a request with these fields has a body."""
    return any(name.lower() in {b"content-length", b"transfer-encoding"} for name, _ in fields)


def host_of(request: Any, fields: Fields) -> str:
    """Return the host that a request is for, with its port."""
    named = [value.decode("latin-1") for name, value in fields if name.lower() == b"host"]
    return named[0] if named else urlsplit(str(request.url)).netloc


def scheme_of(request: Any) -> str:
    """Return http or https."""
    return "https" if urlsplit(str(request.url)).scheme in {"https", "wss"} else "http"


def without_port(host: str) -> str:
    """Return the name alone of a ``Host``."""
    return re.sub(r":\d*$", "", host)


def visit_fields(fields: Fields, host: str, client: str | None, scheme: str) -> Fields:
    """Return the *fields* of a visitor for the engine, which takes our word about the visitor."""
    kept = [
        (name, value)
        for name, value in _end_to_end(fields)
        if not _PRIVATE.fullmatch(name.decode("latin-1").lower().replace("_", "-"))
    ]
    told = [(b"Host", host.encode("latin-1")), *kept, (b"X-Forwarded-Proto", scheme.encode())]
    if client:
        told.append((b"X-Forwarded-For", client.encode()))
    return told
