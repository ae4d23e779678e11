"""What a sandbox may reach, on the wire: policies, their changes, and the log of decisions."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from atoll.wire.base import Request, Result


class EgressDefaults(Request, frozen=True, kw_only=True):
    """What a class, or the configuration of a namespace, says of its sandboxes' connections.

    Args:
        allowed_hosts: the only hosts they reach; empty: no such list.
        denied_hosts: hosts they never reach.
        intercept_https: whether TLS is opened, so that handlers see requests in it.
        outbound: whether the class handles what no other handler does.
        outbound_by_host: patterns of hosts that the class has handlers for.
        outbound_handlers: names of handlers that may be chosen at run time.
        functions: what the functions of `outbound_by_host` are called, by pattern; for people.
        function: likewise of `outbound`.
    """

    allowed_hosts: list[str] = msgspec.field(default_factory=list)
    denied_hosts: list[str] = msgspec.field(default_factory=list)
    intercept_https: bool = False
    outbound: bool = False
    outbound_by_host: list[str] = msgspec.field(default_factory=list)
    outbound_handlers: list[str] = msgspec.field(default_factory=list)
    functions: dict[str, str] = msgspec.field(default_factory=dict)
    function: str = ""


class OutboundHandler(Request, frozen=True, kw_only=True):
    """A handler of the class, by its key in `outbound_handlers`; it finds `params` in its context."""

    name: str
    params: Any = None


class ChangeNetwork(Request, frozen=True, kw_only=True):
    """Changes of a sandbox's own policy, all at once. A list that is None is the class's again.

    Args:
        allowed_hosts: replaces the list.
        denied_hosts: likewise.
        allow: hosts added to the list of allowed ones.
        disallow: hosts taken out of it.
        deny: hosts added to the list of denied ones.
        undeny: hosts taken out of it.
        outbound: handler of everything; None: none of the sandbox's own.
        outbound_by_host: replaces all handlers by host.
        handle: handlers by host that are added.
        unhandle: hosts whose handlers go.
    """

    allowed_hosts: list[str] | UnsetType | None = UNSET
    denied_hosts: list[str] | UnsetType | None = UNSET
    allow: list[str] = msgspec.field(default_factory=list)
    disallow: list[str] = msgspec.field(default_factory=list)
    deny: list[str] = msgspec.field(default_factory=list)
    undeny: list[str] = msgspec.field(default_factory=list)
    outbound: OutboundHandler | UnsetType | None = UNSET
    outbound_by_host: dict[str, OutboundHandler] | UnsetType = UNSET
    handle: dict[str, OutboundHandler] = msgspec.field(default_factory=dict)
    unhandle: list[str] = msgspec.field(default_factory=list)


class NetworkPolicy(Result, frozen=True, kw_only=True):
    """What holds for a sandbox now, or at its next start.

    Args:
        mode: closed (nothing is reached), direct (no rule but the closed ranges) or gateway.
        outbound: name of the handler of all other requests; None: there is none.
        outbound_by_host: pattern → name of the handler.
    """

    mode: str
    enable_internet: bool
    allowed_hosts: list[str] = msgspec.field(default_factory=list)
    denied_hosts: list[str] = msgspec.field(default_factory=list)
    intercept_https: bool = False
    outbound: str | None = None
    outbound_by_host: dict[str, str] = msgspec.field(default_factory=dict)


class NetworkLogQuery(Request, frozen=True, kw_only=True):
    """Decisions after the one with this `cursor`; `follow` goes on as they are made."""

    after: str = ""
    follow: bool = False


class NetworkEvent(Result, frozen=True, kw_only=True):
    """One decision. It is told when the name, connection or request is done with.

    Args:
        cursor: where the log goes on after it.
        time: seconds since the epoch, when it began.
        protocol: dns, http, https, tls, tcp, udp, icmp, or a number.
        verdict: allowed, refused, handled, or failed (allowed, but it could not be done).
        rule: what decided, or why it failed.
        host: the name that was asked for or claimed.
        address: where it went; of dns the answers.
        port: likewise.
        method: of a request.
        path: of a request, without its query.
        status: of its answer.
        bytes_up: bytes that left the sandbox.
        bytes_down: bytes that came.
        duration_ms: how long it took.
        dropped: decisions before this one that are missing: there were too many at once.
    """

    cursor: str
    time: float
    protocol: str
    verdict: str
    rule: str
    host: str = ""
    address: str = ""
    port: int = 0
    method: str = ""
    path: str = ""
    status: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    duration_ms: float = 0.0
    dropped: int = 0
