"""A request as a Worker's handler gets it, and what the handler made of it. Pure.

A handler is the user's code, not the sandbox's, but what it returns may well be made of what the
sandbox sent: heads that would become two are refused here.
"""

import re
from typing import NamedTuple

from atoll.network.gateway import messages
from atoll.network.gateway.protocol import Answered, Call, Forward
from atoll.network.policy import Handler, SandboxPolicy
from atoll.wire.http1 import Fields, Request, write_response

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_OURS = frozenset({b"host", b"content-length", b"expect"})


class Unusable(Exception):  # noqa: N818  # a state of the answer
    """What a handler returned is nothing that can be sent."""


class Forwarded(NamedTuple):
    """A request that a handler lets out."""

    method: bytes
    encrypted: bool
    host: str
    port: int
    target: bytes
    fields: Fields
    body: bytes


def call(
    policy: SandboxPolicy,
    handler: Handler,
    request: Request,
    target: bytes,
    host: str,
    body: bytes,
    *,
    encrypted: bool,
) -> Call:
    """Return the call of *handler* for a request to *host*."""
    scheme = "https" if encrypted else "http"
    named = messages.authority(host, messages.host(request)).decode()
    fields = messages.request_fields(request, host)
    return Call(
        key=policy.key,
        host_ref=policy.host_ref,
        handler=handler,
        method=request.method.decode(),
        url=f"{scheme}://{named}{target.decode('latin-1')}",
        headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields],
        body=body,
    )


def answer(answered: Answered, request: Request) -> bytes:
    """Return a handler's answer to *request* as it is sent.

    Raises:
        Unusable: it is no answer.
    """
    if not 200 <= answered.status <= 599:
        raise Unusable(f"the handler answered with status {answered.status}")
    fields = [field for field in _fields(answered.headers) if field[0].lower() not in _OURS]
    if answered.status not in {204, 304}:
        fields.append((b"Content-Length", b"%d" % len(answered.body)))
    fields.append((b"Connection", b"keep-alive" if request.keep_alive else b"close"))
    head = write_response(answered.status, b"", fields)
    bodiless = request.method == b"HEAD" or answered.status in {204, 304}
    return head if bodiless else head + answered.body


def forwarded(forward: Forward, body: bytes) -> Forwarded:
    """Return the request that a handler lets out.

    Args:
        forward: what it returned.
        body: of the request it was given.

    Raises:
        Unusable: it is no request.
    """
    wanted = messages.destination(forward.url)
    method = forward.method.upper().encode("latin-1", "replace")
    if wanted is None or not _TOKEN.fullmatch(method) or method == b"CONNECT":
        raise Unusable("the handler forwards to no URL, or by no method")
    scheme, host, port, target = wanted
    sent = f"{host}:{port}" if port != (443 if scheme == "https" else 80) else host
    kept = [field for field in _fields(forward.headers) if field[0].lower() not in _OURS]
    return Forwarded(
        method,
        scheme == "https",
        host,
        port,
        target,
        [(b"Host", messages.authority(host, sent)), *kept],
        body if forward.body is None else forward.body,
    )


def _fields(texts: list[tuple[str, str]]) -> Fields:
    fields = [
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in texts
    ]
    for name, value in fields:
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Unusable("the handler has a header that is none")
    return messages.response_fields(fields)
