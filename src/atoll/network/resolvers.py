"""Which resolvers sandboxes use.

The host's own, as far as a sandbox can reach them: a loopback address on the host is not the one
inside. Behind systemd-resolved's stub its upstream servers are taken; for another local resolver
(dnsmasq, unbound) there is nothing to take, and nobody's public resolver is chosen silently: the
sandbox then has no DNS until `network.nameservers` names one. IPv6 resolvers are left out while
sandboxes have no IPv6.
"""

import ipaddress
from collections.abc import Callable
from pathlib import Path

RESOLV_CONF = Path("/etc/resolv.conf")
RESOLVED_UPSTREAM = Path("/run/systemd/resolve/resolv.conf")

MAX = 3
"""What the C library reads of a resolv.conf."""


def parse_resolv_conf(text: str) -> list[str]:
    """Return the IPv4 nameservers of a resolv.conf, in order. Pure."""
    words = (line.split() for line in text.splitlines())
    found = (w[1] for w in words if len(w) >= 2 and w[0] == "nameserver")
    return [address for address in found if _is_ipv4(address)]


def all_nameservers(read: Callable[[Path], str] | None = None) -> tuple[str, ...]:
    """Return the host's resolvers as the gateway uses them: it is on the host, so any will do."""
    words = (line.split() for line in (read or _read)(RESOLV_CONF).splitlines())
    found = (w[1] for w in words if len(w) >= 2 and w[0] == "nameserver")
    return tuple(address for address in found if _is_address(address))[:MAX]


def host_nameservers(read: Callable[[Path], str] | None = None) -> tuple[str, ...]:
    """Return the host's resolvers that a sandbox can reach."""
    read = read or _read
    for path in (RESOLV_CONF, RESOLVED_UPSTREAM):
        servers = parse_resolv_conf(read(path))
        reachable = [s for s in servers if not ipaddress.IPv4Address(s).is_loopback]
        if reachable:
            return tuple(reachable[:MAX])
    return ()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
