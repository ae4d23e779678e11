"""The first look at every request of a listener: previews go to the proxy, the rest to the API.

One port serves both, and a proxy in front may send requests for either by one connection. So the
look is taken whenever a request begins: at its whole head, before anything is parsed. A connection
that carries raw bytes begins as a request of the API, with its key and its limits, and is taken
from the HTTP server when that is decided.
"""

import asyncio
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, TypeAlias

from starlette.requests import Request

from atoll.proxy import route
from atoll.proxy.refusal import write
from atoll.proxy.route import Visitor
from atoll.proxy.server import Connection, Entrance, Site, full
from atoll.server.forwarded import Networks
from atoll.server.protocol import LimitedProtocol
from atoll.wire.operation import MAX_HEAD

Taken: TypeAlias = Callable[[], asyncio.Transport]
"""In a request's scope as extension ``atoll.take``: gives the connection away."""

_END = b"\r\n\r\n"


class Front(LimitedProtocol):
    """One connection of a listener, as long as it asks the API."""

    site: Site
    _begun = b""
    """The beginning of a head that is not whole yet."""

    def data_received(self, data: bytes) -> None:
        """Look at what begins here; parse what is the API's."""
        if self._refused or not self._at_a_head:
            super().data_received(data)
            return
        data = self._begun + data
        head, end, _ = data.partition(_END)
        if not end and len(data) <= MAX_HEAD and _may_begin(data):
            self._wait_for(data)
        elif not end and len(data) > MAX_HEAD:
            self._too_large()
        elif route.sniff(head, self.site.domains):
            self._begun = b""
            self._visit(data)
        else:
            self._begun = b""
            super().data_received(data)

    @property
    def _at_a_head(self) -> bool:
        """Whether the next byte is the first of a request, or one of a head we wait for."""
        between = self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body)
        return between and not self._kept and not self.pipeline

    @property
    def _begun_head(self) -> bool:
        return bool(self._begun) or super()._begun_head

    def _wait_for(self, data: bytes) -> None:
        self._begun = data
        self._unset_keepalive_if_required()
        if self._deadline is None:
            self._expect()

    def _visit(self, data: bytes) -> None:
        """Give the connection to the proxy, which gives it back at a request for the API."""
        transport = self._give_away()
        if len(self.site.connections) >= self.site.limit:
            transport.write(write(full(), "-", [], head_only=False, close=True))
            transport.close()
            return
        entrance = Entrance(
            visitor=Visitor(self.client[0] if self.client else "", self.scheme or "http"),
            trusted=self.site.trusted,
            domains=self.site.domains,
            elsewhere=self._take_back,
        )
        Connection(self.site, entrance, transport, data)

    def _give_away(self) -> asyncio.Transport:
        self._unset_keepalive_if_required()
        self._expected()
        self._read_on()
        self.waiting.pop(self, None)
        self.connections.discard(self)
        transport: Any = self.transport
        found: asyncio.Transport = transport.uncork()
        return found

    def _take_back(self, transport: asyncio.Transport, data: bytes) -> None:
        """Go on with a connection whose next request is the API's, as with a new one."""
        again = type(self)(self.config, self.server_state, self.app_state, self.loop)
        transport.set_protocol(again)
        again.connection_made(transport)
        if not transport.is_closing():
            LimitedProtocol.data_received(again, data)

    def _ambiguous(self) -> str | None:
        """Refuse what was sent ahead for a preview: the look is taken only where a request begins."""
        hosts = [value for name, value in self.headers if name == b"host"]
        if any(route.target_of(host, self.site.domains) for host in hosts):
            return "a request for a preview was sent ahead of an answer of the API"
        return super()._ambiguous()

    # Raw connections

    def on_headers_complete(self) -> None:
        """Begin the request; one that asks for another protocol may take the connection."""
        if self.parser.should_upgrade():
            extensions: Any = {"atoll.take": self._take, "atoll.site": self.site}
            self.scope["extensions"] = extensions
        super().on_headers_complete()

    def _take(self) -> asyncio.Transport:
        self.cycle.disconnected = True  # nobody expects an answer of the application
        return self._give_away()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: what else there is to upgrade to is the application's to know."""


def _may_begin(data: bytes) -> bool:
    """Whether *data* can be the beginning of a head; what cannot is refused without waiting."""
    return data[:1].isalpha() or data[:1] in {b"\r", b"\n"}


def site_of(request: Request) -> Site:
    """Return the site of the listener that *request* came in by."""
    site: Site = request.scope.get("extensions", {}).get("atoll.site")
    return site


def trusting(networks: Networks) -> Callable[[str], bool]:
    """Return whether an address is that of a trusted proxy; the unix socket's other end is."""

    def trusted(address: str) -> bool:
        if not address or not networks:
            return not address
        parsed: Any = ip_address(address)
        known = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(known in network for network in networks)

    return trusted
