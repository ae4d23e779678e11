"""What is made of a request before it leaves, and of an answer before it goes in. Pure.

Heads are written anew from what was understood. The target goes out as a path, the Host field as the
one form of the host that was decided about: no server can read another host into it.
"""

from urllib.parse import urlsplit

from atoll.network import hosts
from atoll.wire.http1 import Fields, Malformed, Request, indexed, write_response

REFUSED = 520
"""Status of a refused request: nothing on the way gives it, so it is told from a server's own."""

_SETTINGS, _GOAWAY = 4, 7

_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization",
    b"proxy-authenticate", b"transfer-encoding", b"upgrade", b"te", b"http2-settings",
})  # fmt: skip
"""Fields between two hops (RFC 9110, 7.6.1); what ``Connection`` names is added to them."""

_NEVER_NAMED = frozenset({b"host", b"content-length", b"authorization", b"cookie"})
"""Fields that ``Connection`` cannot take away."""

_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host", b"trailer"})


def path(request: Request) -> bytes:
    """Return the target as a path.

    Raises:
        Malformed: it is none, or names another host than the Host field.
    """
    target = request.target
    if target.startswith(b"/") or (target == b"*" and request.method == b"OPTIONS"):
        return target
    return _path_of_url(target, host(request))


def host(request: Request) -> str:
    """Return the Host field as it was sent; empty where HTTP/1.0 left it out."""
    return next(iter(request.get(b"host")), b"").decode("latin-1")


def _path_of_url(target: bytes, named: str) -> bytes:
    scheme, mark, rest = target.partition(b"://")
    if not mark or scheme.lower() not in {b"http", b"https"}:
        raise Malformed("the target is no path")
    cut = min((at for at in map(rest.find, (b"/", b"?", b"#")) if at >= 0), default=len(rest))
    authority = rest[:cut].decode("latin-1")
    claimed = hosts.canonical_host(hosts.split_port(authority))
    if claimed is None or claimed != hosts.canonical_host(hosts.split_port(named)):
        raise Malformed("the target and the Host field differ")
    left = rest[cut:].partition(b"#")[0]
    return left if left.startswith(b"/") else b"/" + left


def request_fields(request: Request, proved: str) -> Fields:
    """Return the fields that the server gets, but for the framing of the body."""
    dropped = _dropped(request.fields) | {b"host", b"content-length"}
    kept = [(name, value) for name, value in request.fields if name.lower() not in dropped]
    return [(b"Host", authority(proved, host(request))), *kept]


def authority(proved: str, sent: str) -> bytes:
    """Return the Host field for *proved*, with the port that was sent."""
    bare = hosts.split_port(sent)
    port = sent.rpartition(":")[2] if len(sent) > len(bare) and not sent.endswith("]") else ""
    name = f"[{proved}]" if ":" in proved else proved
    return f"{name}:{port}".encode() if port else name.encode()


def framed(fields: Fields, request: Request) -> Fields:
    """Return *fields* with the framing of the request's body, and its wish for another protocol."""
    framing: Fields = []
    if request.chunked:
        framing.append((b"Transfer-Encoding", b"chunked"))
    elif lengths := request.get(b"content-length"):
        framing.append((b"Content-Length", lengths[0]))
    if request.upgrade == b"websocket":
        framing += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    return [*fields, *framing]


def response_fields(fields: Fields) -> Fields:
    """Return the fields of an answer that go in."""
    dropped = _dropped(fields)
    return [(name, value) for name, value in fields if name.lower() not in dropped]


def trailers(fields: Fields) -> Fields:
    """Return the trailers that are passed on: none that frames or routes."""
    return [(name, value) for name, value in fields if name.lower() not in _FRAMING]


def refusal(status: int, text: str, *, head_only: bool) -> bytes:
    """Return a whole answer of ours, after which the connection ends."""
    reason = b"Refused" if status == REFUSED else b"Error"
    body = f"atoll: {text}\n".encode()
    head = write_response(status, reason, [
        (b"Content-Type", b"text/plain; charset=utf-8"),
        (b"Content-Length", b"%d" % len(body)),
        (b"Atoll-Egress", b"refused" if status == REFUSED else b"failed"),
        (b"Connection", b"close"),
    ])  # fmt: skip
    return head if head_only else head + body


def refusal_of_http2(text: str) -> bytes:
    """Return settings and an end in HTTP/2, with the code that asks for HTTP/1.1 (RFC 9113, 7)."""
    end = bytes(4) + (0xD).to_bytes(4, "big") + f"atoll-egress: refused: {text}".encode()
    return _frame(_SETTINGS, b"") + _frame(_GOAWAY, end)


def _frame(kind: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, 0)) + bytes(4) + payload


def destination(url: str) -> tuple[str, str, int, bytes] | None:
    """Return scheme, host, port and target of an absolute URL; None: it is none for us."""
    if not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
        return None  # some of them urlsplit takes away silently
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    named = hosts.canonical_host(parts.hostname or "")
    if parts.scheme not in {"http", "https"} or named is None:
        return None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.startswith("/"):
        return None
    default = 443 if parts.scheme == "https" else 80
    return parts.scheme, named, port or default, target.encode()


def _dropped(fields: Fields) -> frozenset[bytes]:
    named = {
        name.strip().lower()
        for value in indexed(fields).get(b"connection", [])
        for name in value.split(b",")
    }
    return _HOP | (named - _NEVER_NAMED)
