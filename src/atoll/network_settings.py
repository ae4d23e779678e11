"""How sandboxes are connected: a part of `atoll.settings`. Reads nothing."""

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(gt=0, lt=1 << 31)]
Spare = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]  # a count that may be none
HandlerSeconds = Annotated[float, msgspec.Meta(gt=0, le=3_600)]  # less than the gateway waits


class NetworkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of sandboxes, and what they may reach at all."""

    cidr: str = "10.213.0.0/16"
    """Cut into one /30 a sandbox. Change it where the site uses these addresses."""

    cidr6: str = "fd61:746f:6c6c::/64"
    """IPv6 addresses of sandboxes, translated to the host's own where they leave."""

    ipv6: Literal["auto", "on", "off"] = "auto"
    """Whether sandboxes have IPv6. `auto`: where the host has a way out and forwards IPv6 already; `on`
    has it forward (its interfaces go on accepting router advertisements)."""

    private_ranges: tuple[str, ...] = ()
    """Ranges outside the public internet that sandboxes may reach (CIDR). The host itself and
    other sandboxes stay closed."""

    bandwidth_mbit: Spare = 0
    """Mbit/s of one sandbox, each way; 0: no limit."""

    max_connections: Count = 4_096
    """Open connections of one sandbox. The host's table has 65,536 entries or more by default."""

    handler_timeout: HandlerSeconds = 60.0
    """Seconds that an outbound handler has for one request, which is refused then."""

    gateway_memory_mib: Count = 1_024
    """Memory of the egress gateway in MiB. One that wants more is ended, its connections are cut, and
    another one is started. It has 60 MiB without connections; the first 256 of a
    sandbox may come to have 0.5 MiB each, others 0.1."""

    authorities: tuple[str, ...] = ()
    """Files (PEM) of authorities that servers on the way out may have, besides those the host trusts:
    asked where TLS is opened."""

    tls_bypass: tuple[str, ...] = ()
    """Hosts, `*` for any part, whose TLS is never opened: clients that pin certificates."""

    nameservers: tuple[str, ...] = ()
    """Resolvers of sandboxes; empty: the host's own."""

    prepared: Spare = 2
    """Network slots kept ready so that a start does not wait for one (about 30 ms each)."""
