"""Who a request really comes from, where a proxy passed it on. Pure.

`X-Forwarded-*` is what the sender wrote, so it counts only from proxies that the settings name.
The list is read from its end: each proxy appends who it got the request from, and the first that
is no proxy of ours is the caller; what stands before it anybody may have written.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from starlette.datastructures import Headers

from atoll.errors import InvalidConfigError

Networks = Sequence[IPv4Network | IPv6Network]


class Origin(NamedTuple):
    """Where a request comes from: an address (None by the unix socket), http or https."""

    client: str | None
    scheme: str


def networks(written: Sequence[str]) -> Networks:
    """Return the networks of the settings.

    Raises:
        InvalidConfigError: one of them is no network.
    """
    try:
        return [ip_network(text) for text in written]
    except ValueError as error:
        raise InvalidConfigError(
            f"server.trusted_proxies: {error}", context={"setting": "server.trusted_proxies"},
            suggestion="write networks like 10.0.0.0/8 or 127.0.0.1",
        ) from error  # fmt: skip


def origin(peer: str | None, scheme: str, headers: Headers, trusted: Networks) -> Origin:
    """Return who sent a request.

    Args:
        peer: address of the other end of the connection.
        scheme: of the connection.
    """
    if not _is_of(peer, trusted):
        return Origin(peer, scheme)
    told = headers.get("x-forwarded-proto", "").lower()
    hops = [hop.strip() for line in headers.getlist("x-forwarded-for") for hop in line.split(",")]
    client = peer
    for hop in reversed(hops):
        if not _is_address(hop):
            break
        client = hop
        if not _is_of(hop, trusted):
            break
    return Origin(client, told if told in {"http", "https"} else scheme)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_of(address: str | None, trusted: Networks) -> bool:
    if not address or not trusted or not _is_address(address):
        return False
    parsed = ip_address(address)
    mapped = getattr(parsed, "ipv4_mapped", None)
    return any((mapped or parsed) in network for network in trusted)
