"""What a host is: names, addresses in every notation, and patterns of both. Pure.

A name has one form here, whatever was typed: lower case, A-labels, no trailing dot. Whatever a
client or the C library would take for an address is one, also `2130706433`, `0x7f.1` and
`::ffff:127.0.0.1`; an IPv6 address that only wraps an IPv4 address is that IPv4 address. What is
neither a name nor an address is no host and goes nowhere.
"""

import ipaddress
import re
from typing import TypeAlias

import idna

from atoll.errors import ValidationFailedError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_NAME = 253
"""Longest name in characters (RFC 1035: 255 bytes on the wire)."""

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_PATTERN = re.compile(r"[a-z0-9_.*-]{1,253}")
_LIKE_ADDRESS = re.compile(r"[0-9.*]*[0-9][0-9.*]*")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_TRANSLATED = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""Prefixes of IPv6 whose last 32 bits are the IPv4 address meant: NAT64, IPv4-compatible."""

CLOSED: tuple[Network, ...] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "224.0.0.0/3",
            "::/3",
            "2001::/23",
            "2002::/16",
            "4000::/2",
            "8000::/1",
        ),
    )
)
"""Addresses that are no part of the public internet (RFC 6890): private, link-local, shared (with
the metadata service 100.100.100.200), tunnels (6to4, Teredo), multicast. Of IPv6 all but global
unicast 2000::/3 is closed, with it fc00::/7, fe80::/10 and fd00:ec2::254. Ranges of documentation
are nobody's and left out."""


def canonical_name(text: str) -> str | None:
    """Return the one form of a host name, or None if *text* is none.

    A name whose last label is a number is an address to most clients, so it is no name.
    """
    name = _ascii(text.removesuffix("."))
    if name is None or len(name) > MAX_NAME:
        return None
    labels = name.split(".")
    if not all(map(_LABEL.fullmatch, labels)) or _NUMBER.fullmatch(labels[-1]):
        return None
    return name


def canonical_host(text: str) -> str | None:
    """Return the one form of a name or an address, or None if *text* is neither."""
    found = address(text)
    return canonical_name(text) if found is None else str(found)


def split_port(authority: str) -> str:
    """Return the host of a ``Host`` header: without a port, and without brackets.

    What is malformed comes back as it is: it is no host, and `canonical_host` says so.
    """
    host, colon, port = authority.rpartition(":")
    if not colon or "]" in port:
        host, port = authority, ""
    if port and not (port.isascii() and port.isdigit()):
        return authority
    return host if not host.startswith("[") else _unbracketed(host, authority)


def address(text: str) -> Address | None:
    """Return the address that *text* stands for in any notation, or None.

    IPv4 as inet_aton reads it: one to four parts, each decimal, octal or hexadecimal. Zones
    (``fe80::1%eth0``) are refused.
    """
    bare = text.removesuffix(".").lower()
    if not bare.isascii():
        return None
    if ":" in bare:
        return _ipv6(bare[1:-1] if bare[0] == "[" and bare[-1] == "]" else bare)
    parts = bare.split(".")
    if len(parts) > 4 or not all(map(_NUMBER.fullmatch, parts)):
        return None
    return _inet_aton(parts)


def plain(found: Address) -> Address:
    """Return the IPv4 address that an IPv6 address wraps, or the address itself."""
    if isinstance(found, ipaddress.IPv4Address):
        return found
    if found.ipv4_mapped:
        return found.ipv4_mapped
    if any(found in prefix for prefix in _TRANSLATED) and int(found) > 1:
        return ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    return found


def canonical_pattern(text: str) -> str:
    """Return the one form of a pattern: an address, a range in CIDR notation, or a name with `*`.

    Raises:
        ValidationFailedError: it is none of these.
    """
    stripped = text.strip()
    if found := address(stripped):
        return str(found)
    if "/" in stripped:
        name = _network(stripped)
    else:
        name = _glob(stripped) if "*" in stripped else canonical_name(stripped)
    if name is None:
        raise ValidationFailedError(
            f"{text[:100]!r} is no host",
            context={"host": text[:300]},
            suggestion="give a name (`*` stands for any characters), an address or a CIDR range; "
            "no scheme, port or path",
        )
    return name


def matches(pattern: str, host: str) -> bool:
    """Tell whether *host* is meant by *pattern*; both in their one form.

    `*` stands for any characters of a name, dots too: ``*.example.com`` means every name below it,
    but not ``example.com``. No star means an address; ranges do. Time grows with the length of
    both, whatever the stars.
    """
    if "*" not in pattern and "/" not in pattern:
        return pattern == host
    found = address(host)
    if "/" in pattern:
        return found is not None and found in ipaddress.ip_network(pattern)
    return found is None and _globs(pattern, host)


def _globs(pattern: str, host: str) -> bool:
    first, *rest = pattern.split("*")
    last = rest.pop()
    if not host.startswith(first) or len(host) < len(first) + len(last):
        return False
    position, end = len(first), len(host) - len(last)
    for part in rest:
        found_at = host.find(part, position, end)
        if found_at < 0:
            return False
        position = found_at + len(part)
    return host.endswith(last)


def is_closed(found: Address, opened: tuple[str, ...] = ()) -> bool:
    """Tell whether an address is outside the public internet and in none of the *opened* ranges."""
    real = plain(found)
    if any(real in ipaddress.ip_network(network) for network in opened):
        return False
    return any(real in network for network in CLOSED)


def _ascii(text: str) -> str | None:
    if text.isascii():
        return text.lower()
    try:
        return idna.encode(text, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        return None


def _glob(text: str) -> str | None:
    """Return a name with stars in its one form: a label with a star has ASCII letters only.

    ``10.*`` is refused: it looks like addresses, and a star means none.
    """
    labels = [
        label if "*" in label else _ascii(label)
        for label in text.lower().removesuffix(".").split(".")
    ]
    joined = ".".join(label or "." for label in labels)
    if ".." in joined or not _PATTERN.fullmatch(joined) or _LIKE_ADDRESS.fullmatch(joined):
        return None
    return joined


def _network(text: str) -> str | None:
    try:
        found = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    wrapped = plain(found.network_address)
    if wrapped.version != found.version and found.prefixlen >= 96:
        return f"{wrapped}/{found.prefixlen - 96}"
    return str(found)


def _unbracketed(host: str, authority: str) -> str:
    inner = host[1:-1]
    return inner if host.endswith("]") and ":" in inner else authority


def _ipv6(text: str) -> Address | None:
    if "%" in text:
        return None
    try:
        return plain(ipaddress.IPv6Address(text))
    except ValueError:
        return None


def _inet_aton(parts: list[str]) -> Address | None:
    try:
        numbers = [_number(part) for part in parts]
    except ValueError:
        return None
    *head, tail = numbers
    if any(number > 255 for number in head) or tail >= 256 ** (5 - len(parts)):
        return None
    value = sum(number << (24 - 8 * place) for place, number in enumerate(head))
    return ipaddress.IPv4Address(value + tail)


def _number(part: str) -> int:
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8) if part.startswith("0") and part != "0" else int(part)
