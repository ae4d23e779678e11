"""Whose request it is, and which fields it and its answer travel with. Pure.

The server inside sees ``Host: localhost:<port>``, for HTTP and WebSocket alike: development
servers refuse names they do not know, and this one all of them know. The name the visitor used is
in ``X-Forwarded-Host``. What a visitor sends under these names never arrives.
"""

import re
from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import NamedTuple

from atoll.wire import preview
from atoll.wire.http1 import Fields, Request, values
from atoll.wire.preview import Target

_AUTHORITY = re.compile(
    rb"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9_.])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
)
_HOST_LINE = re.compile(rb"\r\nhost:[ \t]*([^\r\n]*)", re.IGNORECASE)
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)(.*)", re.DOTALL)

_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization",
    b"proxy-authenticate", b"transfer-encoding", b"upgrade", b"te", b"http2-settings",
})  # fmt: skip
"""Fields between two hops (RFC 9110, 7.6.1); what ``Connection`` names is added to them."""

_HOP_OR_ROUTE = _HOP | {b"host", b"content-length"}
_HOP_OF_ANSWER = _HOP - {b"proxy-authenticate"}
_USUAL: tuple[list[bytes], ...] = ([], [b"keep-alive"], [b"close"])

_OURS = re.compile(rb"x-forwarded-.+|forwarded|x-real-ip|x-original-.+|x-sandbox-.+|x-atoll-.+|"
                   rb"cf-connecting-ip|cf-container-.+|true-client-ip|x-rewrite-url")  # fmt: skip
"""Fields by which a proxy tells who visits and what: only this proxy's own count. Servers read an
underscore as a hyphen, so both are the same here."""

_OURS_BEGIN = frozenset({b"x", b"f", b"c", b"t"})

_DOMAIN = re.compile(rb";[ \t]*domain[ \t]*=[ \t]*\"?\.?([^;\"]*)\"?[ \t]*", re.IGNORECASE)


class Visitor(NamedTuple):
    """Who visits, as far as the proxy believes it."""

    address: str
    scheme: str = "http"


def authority(request: Request) -> bytes:
    """Return the host and port that *request* is for, empty where it names none properly.

    A target that is a whole URL has to name the same host as ``Host``: two names in one request
    are what routing by one and serving by the other is attacked with.
    """
    host = (request.get(b"host") or [b""])[0]
    absolute = _ABSOLUTE.fullmatch(request.target)
    if absolute and absolute[1].lower() != host.lower():
        return b""
    return host if _AUTHORITY.fullmatch(host) else b""


def host_of(named: bytes) -> str:
    """Return the host name of an `authority`, in lower case; empty for none."""
    match = _AUTHORITY.fullmatch(named)
    return match["host"].decode("ascii").lower().removesuffix(".") if match else ""


def target_of(named: bytes, domains: Collection[str] | None) -> Target | None:
    """Return the preview that an `authority` names; None: it is no preview's name.

    Args:
        named: host and port.
        domains: domains that have previews; None: any.
    """
    found = preview.parse(host_of(named))
    if found is None or (domains is not None and found.hostname not in domains):
        return None
    return found


def sniff(head: bytes, domains: Collection[str]) -> bool:
    """Whether the beginning of a request, a whole head, is for a preview.

    It is parsed strictly later; here a name that appears in any ``Host`` is enough.
    """
    return any(target_of(host.strip(), domains) for host in _HOST_LINE.findall(head))


def path_of(target: bytes) -> bytes:
    """Return *target* as path and query, whatever form it has."""
    absolute = _ABSOLUTE.fullmatch(target)
    found = absolute[2] if absolute else target
    return found if found.startswith((b"/", b"*")) else b"/" + found


def _is_ours(lower: bytes) -> bool:
    if lower[:1] not in _OURS_BEGIN:
        return False
    return _OURS.fullmatch(lower.replace(b"_", b"-")) is not None


def _connection_names(values: list[bytes]) -> set[bytes]:
    if values in _USUAL:
        return set()
    named = b",".join(values).split(b",")
    return {name.strip().lower() for name in named} - {b"host", b"content-length"}


def request_fields(
    request: Request, visitor: Visitor, port: int, sandbox_id: str, named: bytes
) -> Fields:
    """Return the fields that *request* has for the server inside."""
    dropped = _HOP_OR_ROUTE | _connection_names(request.get(b"connection"))
    kept = [
        (name, value)
        for name, value in request.fields
        if (lower := name.lower()) not in dropped and not _is_ours(lower)
    ]
    original = b"%b://%b%b" % (visitor.scheme.encode(), named, path_of(request.target))
    fields = [
        (b"Host", b"localhost:%d" % port),
        *kept,
        (b"X-Forwarded-Host", named),
        (b"X-Forwarded-Proto", visitor.scheme.encode()),
        (b"X-Forwarded-For", visitor.address.encode()),
        (b"X-Original-URL", original),
        (b"X-Sandbox-Name", sandbox_id.encode()),
    ]
    if _takes_trailers(request):
        fields.append((b"TE", b"trailers"))
    return fields + _request_framing(request)


def _takes_trailers(request: Request) -> bool:
    if b"te" not in request.lookup:
        return False
    tokens = b",".join(request.get(b"te")).split(b",")
    return b"trailers" in {token.partition(b";")[0].strip().lower() for token in tokens}


def _request_framing(request: Request) -> Fields:
    if request.upgrade == b"websocket":
        return [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    fields = [(b"Connection", b"keep-alive")]
    if _takes_trailers(request):
        fields = [(b"Connection", b"keep-alive, TE")]
    if request.chunked:
        return [*fields, (b"Transfer-Encoding", b"chunked")]
    lengths = request.get(b"content-length")
    return [*fields, *((b"Content-Length", length) for length in lengths[:1])]


def response_fields(fields: Fields, host: str) -> Fields:
    """Return the *fields* of an answer for a visitor of *host*, without those that frame it."""
    dropped = _HOP_OF_ANSWER | _connection_names(values(fields, b"connection"))
    return [
        (name, _own_cookie(value, host) if name.lower() == b"set-cookie" else value)
        for name, value in fields
        if name.lower() not in dropped
    ]


def _own_cookie(value: bytes, host: str) -> bytes:
    """Take the domain off a cookie that other previews would be sent too."""

    def kept(match: re.Match[bytes]) -> bytes:
        return match[0] if match[1].strip().lower() == host.encode() else b""

    return _DOMAIN.sub(kept, value)


def visitor_of(visitor: Visitor, request: Request, trusted: Callable[[str], bool]) -> Visitor:
    """Return who visits by way of *visitor*, if that is a proxy whose word counts.

    Args:
        visitor: the other end of the connection.
        request: what it passes on.
        trusted: whether the word of an address counts.
    """
    if not trusted(visitor.address):
        return visitor
    address = visitor.address
    told = b",".join(request.get(b"x-forwarded-for")).decode("latin-1").split(",")
    for part in reversed([part.strip() for part in told]):
        if not trusted(address) or not _is_address(part):
            break
        address = part
    scheme = (request.get(b"x-forwarded-proto") or [b""])[-1].strip().lower()
    return Visitor(
        address or "127.0.0.1", scheme.decode() if scheme in {b"http", b"https"} else visitor.scheme
    )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
