"""Exposed ports on the wire: what `expose_port` asks and tells, and the log of visits."""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from atoll.wire.base import Millis, Request, Result, Whole

RAW = "atoll-raw"
"""Name in ``Upgrade`` for a connection that carries raw bytes from then on: to a port inside
(`ops.CONNECT_PORT`), or the HTTP of visitors of previews (`ops.CONNECT_PREVIEWS`)."""


class ExposePort(Request, frozen=True, kw_only=True):
    """Which port to expose, and to whom. `auth` is bearer or cookie; None: either, if private."""

    port: Whole
    hostname: str | None = None
    name: str | None = None
    token: str | None = None
    public: bool = True
    auth: str | None = None
    expires_ms: Millis | None = msgspec.field(default=None, name="expires")


class ExposedPort(Result, frozen=True, kw_only=True):
    """An exposed port. `secret` is what a bearer header has to carry, only told by `expose_port`."""

    url: str
    port: int
    name: str | None = None
    status: str = "active"
    public: bool = True
    auth: str | None = None
    expires_at: datetime | None = None
    secret: str | None = None


class ListPorts(Request, frozen=True, kw_only=True):
    """Under which host name to tell URLs; None: the one each was exposed with."""

    hostname: str | None = None


class ExposedPorts(Result, frozen=True, kw_only=True):
    """The ports that forward now."""

    ports: list[ExposedPort]


class CheckPort(Request, frozen=True, kw_only=True):
    """A token to check; None: only whether the port is exposed."""

    token: str | None = None


class PortState(Result, frozen=True, kw_only=True):
    """Whether a port forwards now, and whether a token is the right one for it."""

    exposed: bool
    valid: bool


class MakeLink(Request, frozen=True, kw_only=True):
    """How long the link may be used, in milliseconds."""

    expires_ms: Millis = msgspec.field(default=3_600_000, name="expires")


class PreviewLink(Result, frozen=True, kw_only=True):
    """A link that opens a private preview once, in one browser."""

    url: str
    expires_at: datetime


class Visit(Result, frozen=True, kw_only=True):
    """One request to a preview. Sizes are bytes of bodies; `path` has no query: it may be secret."""

    at: datetime
    method: str
    path: str
    status: int
    visitor: str
    duration_ms: int = msgspec.field(name="duration")
    received: int
    sent: int


class AccessLog(Result, frozen=True, kw_only=True):
    """The latest requests to a preview, oldest first."""

    visits: list[Visit]

    def __iter__(self) -> Iterator[Visit]:
        return iter(self.visits)


class WaitForPorts(Request, frozen=True, kw_only=True):
    """Ports that have to take connections; the sandbox is started first.

    One request waits 10 minutes at most; who wants to wait longer asks again.
    """

    ports: list[Whole]
    wait_ms: Millis = msgspec.field(default=90_000, name="wait")
    interval_ms: Millis = msgspec.field(default=300, name="interval")


class PortsReady(Result, frozen=True, kw_only=True):
    """Those of the ports that do not take connections yet; none: all do."""

    missing: list[int]


class ConnectPort(Request, frozen=True, kw_only=True):
    """How to connect to a port: how long to wait for a server there, in milliseconds.

    One request waits 10 minutes at most.

    `hold` keeps the sandbox awake as long as the connection is open, not only while bytes go by.
    """

    wait_ms: Millis = msgspec.field(default=0, name="wait")
    hold: bool = False


class ConnectPreviews(Request, frozen=True, kw_only=True):
    """Which namespaces may be visited, comma separated; None: all that the key is for."""

    namespaces: str | None = None


class OpenTunnel(Request, frozen=True, kw_only=True):
    """A tunnel for a port; `name` is that of a tunnel of one's own account, None: a random one."""

    name: str | None = None


class Tunnel(Result, frozen=True, kw_only=True):
    """A public address of a port."""

    port: int
    url: str
    name: str | None = None


class TunnelList(Result, frozen=True, kw_only=True):
    """The tunnels of a sandbox."""

    tunnels: list[Tunnel]
