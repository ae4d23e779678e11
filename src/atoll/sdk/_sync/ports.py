"""Ports of a sandbox: exposed to visitors, and used from here."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from atoll.errors import ServiceNotRespondingError
from atoll.sdk import _arguments, _ports
from atoll.sdk._sync.raw import RawConnection
from atoll.sdk._sync.service import ServiceResponse, ask
from atoll.sdk._sync.target import Target
from atoll.sdk._sync.websocket import WebSocket
from atoll.wire import ops
from atoll.wire.base import Duration, Empty
from atoll.wire.ports import (
    CheckPort,
    ConnectPort,
    ExposedPort,
    ExposePort,
    ListPorts,
    MakeLink,
    OpenTunnel,
    PreviewLink,
    Tunnel,
    Visit,
    WaitForPorts,
)

STARTING = "10s"
"""How long a server that was just started may take until it listens."""

_STEP_MS = 30_000
"""Milliseconds one request waits for ports; then it is asked again."""


class Tunnels(Target):
    """Public addresses of a sandbox's ports, through cloudflared on the engine's host."""

    def get(self, port: int, name: str | None = None) -> Tunnel:
        """Return the tunnel of a port; start it where need be.

        Args:
            port: it is exposed if it is not yet; the rules of previews hold for the tunnel too.
            name: of a tunnel in the account of the engine's user; None: a random address.

        Raises:
            TunnelNotAvailableError: cloudflared is not installed there.
            TunnelError: it failed; `context.output` has what it said.
        """
        more = {"port": str(port)}
        return self._call(ops.OPEN_TUNNEL, OpenTunnel(name=name), more=more)

    def list(self) -> list[Tunnel]:
        """Return the tunnels that are open."""
        return (self._call(ops.LIST_TUNNELS, Empty())).tunnels

    def destroy(self, port: int) -> None:
        """End the tunnel of a port; nothing happens if there is none."""
        self._call(ops.DESTROY_TUNNEL, Empty(), more={"port": str(port)})


class Ports(Target):
    """Ports."""

    @property
    def tunnels(self) -> Tunnels:
        """Public addresses of ports."""
        return Tunnels(self._address)

    def expose_port(
        self,
        port: int,
        *,
        hostname: str | None = None,
        name: str | None = None,
        token: str | None = None,
        public: bool = True,
        expires: Duration | None = None,
        auth: str | None = None,
    ) -> ExposedPort:
        """Give a port of the sandbox an address that browsers can reach.

        The same port again gets the same address, also after a sleep, in which previews do not
        forward. What is given then replaces what was: access and expiry.

        Args:
            port: 1024 to 65535, not 3000.
            hostname: the domain that the address is below, with its port if that is not the
                usual one (``example.com``, ``localhost:8787``); default: the engine's first.
            name: for people.
            token: 1 to 16 of a-z, 0-9 and ``_``; default: 16 that cannot be guessed.
            public: False: visitors need the secret or a one-time link, whichever.
            expires: when the address ends; None: never.
            auth: "bearer": visitors send ``Authorization: Bearer <secret>``; "cookie": they come
                by a link of `preview_link` first. Either makes the port private.

        Raises:
            InvalidPortError: the port cannot be exposed.
            InvalidSandboxIdError: the id is no part of a host name; see `normalize_id`.
            PortAlreadyExposedError: it is, with another token or name; or the token is taken.
            CustomDomainRequiredError: the domain has no wildcard names.
        """
        request = ExposePort(
            port=port,
            hostname=hostname,
            name=name,
            token=token,
            public=public,
            auth=auth,
            expires_ms=_arguments.milliseconds("expires", expires),
        )
        return self._call(ops.EXPOSE_PORT, request)

    def unexpose_port(self, port: int) -> None:
        """Take the address of a port away and cut its connections; starts nothing."""
        self._call(ops.UNEXPOSE_PORT, Empty(), more={"port": str(port)})

    def get_exposed_ports(self, hostname: str | None = None) -> list[ExposedPort]:
        """Return the ports that forward now, with their addresses below *hostname*."""
        return (self._call(ops.LIST_PORTS, ListPorts(hostname=hostname))).ports

    def is_port_exposed(self, port: int) -> bool:
        """Return whether a port forwards now."""
        found = self._call(ops.CHECK_PORT, CheckPort(), more={"port": str(port)})
        return found.exposed

    def validate_port_token(self, port: int, token: str) -> bool:
        """Return whether a port forwards now, by this token."""
        request = CheckPort(token=token)
        return (self._call(ops.CHECK_PORT, request, more={"port": str(port)})).valid

    def preview_link(self, port: int, *, expires: Duration = "1h") -> PreviewLink:
        """Return a link that opens a private preview once, in one browser, for a day.

        Args:
            port: an exposed port.
            expires: how long the link may be used.
        """
        limit = _arguments.milliseconds("expires", expires)
        request = MakeLink(expires_ms=limit or 0)
        return self._call(ops.PREVIEW_LINK, request, more={"port": str(port)})

    def preview_log(self, port: int) -> list[Visit]:
        """Return the latest 500 requests to a preview, oldest first; kept in memory only."""
        return (self._call(ops.PREVIEW_LOG, Empty(), more={"port": str(port)})).visits

    def fetch(
        self,
        request: Any,
        *,
        port: int | None = None,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        timeout: Duration | None = None,
        wait: Duration = STARTING,
    ) -> ServiceResponse:
        """Send an HTTP request to a service inside, which need not be exposed.

        Args:
            request: a path, a URL (``http://localhost:8080/x``), or a request of a Worker or web
                framework.
            port: default: the port in the URL.
            method: default: that of *request*, else GET.
            headers: default: those of *request*.
            body: bytes, text, a file object or an iterable of bytes, which is streamed.
            timeout: until the head of the answer is there; None: any time.
            wait: how long to wait for a server on that port, 10 minutes at most.

        Raises:
            ServiceNotRespondingError: nothing listens there, or what does speaks no HTTP.
            TimeoutError: the time was over.
        """
        found = _ports.wanted(request, method, headers, body)
        if found.body is not None:
            _arguments.check_content("body", found.body)
        number = _ports.port_of(port, found)
        limit = _arguments.milliseconds("timeout", timeout)
        seconds = None if limit is None else limit / 1000
        fields = _ports.fields_for(found, number)
        connection = self._connect(number, wait, hold=True)
        return ask(connection, found.method, found.target, fields, found.body, seconds)

    def container_fetch(self, request: Any, port: int | None = None) -> ServiceResponse:
        """Send an HTTP request to a service inside; see `fetch`."""
        return self.fetch(request, port=port)

    def ws_connect(
        self,
        request: Any,
        port: int | None = None,
        *,
        subprotocols: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        wait: Duration = STARTING,
    ) -> WebSocket:
        """Open a WebSocket to a service inside; a Worker may return it as its answer.

        Args:
            request: a path, a URL, or a visitor's request for a WebSocket.
            port: default: the port in the URL.
            subprotocols: default: those of *request*.
            headers: default: those of *request*.
            wait: how long to wait for a server on that port, 10 minutes at most.

        Raises:
            ServiceNotRespondingError: nothing listens there, or no WebSocket is to be had.
        """
        found = _ports.wanted(request, "GET", headers, None)
        number = _ports.port_of(port, found)
        given = _ports.encoded(found)
        offered = _ports.offered(subprotocols, given)
        fields = _ports.without_handshake(_ports.fields_for(found, number))
        connection = self._connect(number, wait, hold=False)
        return WebSocket.open(connection, found.target, fields, offered)

    def _connect(self, port: int, wait: Duration, *, hold: bool) -> RawConnection:
        limit = _arguments.milliseconds("wait", wait)
        self._address.ensure()
        return RawConnection.open(
            self._address.transport,
            ops.CONNECT_PORT,
            {**self._address.params, "port": str(port)},
            ConnectPort(wait_ms=limit or 0, hold=hold),
            ready=self._address.ready,
        )

    def start_and_wait_for_ports(
        self,
        ports: int | Iterable[int],
        *,
        timeout: Duration | None = None,
        interval: Duration | None = None,
    ) -> None:
        """Start the sandbox if need be and wait until all *ports* take connections.

        Args:
            ports: one or more.
            timeout: default: `container_timeouts.port_ready`.
            interval: between two tries; default: `container_timeouts.wait_interval`.

        Raises:
            ServiceNotRespondingError: the time was over; `context.missing` has the ports.
        """
        numbers = [ports] if isinstance(ports, int) else _arguments.listed("ports", ports)
        timeouts = self._address.timeouts
        limit = _arguments.milliseconds("timeout", timeout)
        left = round(timeouts.port_ready * 1000) if limit is None else limit
        pause = _arguments.milliseconds("interval", interval)
        pause = round(timeouts.wait_interval * 1000) if pause is None else pause
        while True:
            step = min(left, _STEP_MS)
            request = WaitForPorts(ports=numbers, wait_ms=step, interval_ms=pause)
            missing = (self._call(ops.WAIT_FOR_PORTS, request)).missing
            left -= step
            if not missing:
                return
            if left <= 0:
                raise ServiceNotRespondingError(
                    f"nothing takes connections on port {', '.join(map(str, missing))}",
                    context={"missing": missing},
                    suggestion="start a server there, and look at its log",
                )
            numbers = missing
