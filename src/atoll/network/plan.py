"""Which names and addresses the slots have. Pure.

A slot's number gives its host interface's name, and claiming that name in the kernel claims the
number for the whole host; so engines that share a range of addresses never share an address.
"""

import hashlib
import ipaddress
import re

from atoll.errors import InvalidConfigError

_NAME = re.compile(r"atl(\d+)")
_BLOCK = 4
"""Addresses of one slot: network, host, sandbox, broadcast."""

PREFIX_LENGTH = 30
PREFIX_LENGTH6 = 126
"""Of the same four addresses."""


class Plan:
    """Cuts ranges into blocks of four addresses.

    Args:
        cidr: the IPv4 range, of at most /28.
        cidr6: the IPv6 range, with as many addresses or more.

    Raises:
        InvalidConfigError: one is none.
    """

    def __init__(self, cidr: str, cidr6: str = "fd61:746f:6c6c::/64") -> None:
        try:
            self.network = ipaddress.IPv4Network(cidr)
            self.network6 = ipaddress.IPv6Network(cidr6)
        except ValueError as error:
            raise InvalidConfigError(
                f"network.cidr or network.cidr6: {error}", context={"cidr": cidr, "cidr6": cidr6}
            ) from error
        self.slots = self.network.num_addresses // _BLOCK
        if self.network.prefixlen > 28 or self.network6.num_addresses < self.network.num_addresses:
            raise InvalidConfigError(
                f"network.cidr {cidr} or network.cidr6 {cidr6} has room for too few sandboxes",
                suggestion="use ranges like 10.213.0.0/16 and fd61:746f:6c6c::/64",
            )

    def gateway(self, number: int) -> str:
        """Return the host's address in the block."""
        return str(self.network[number * _BLOCK + 1])

    def address(self, number: int) -> str:
        """Return the sandbox's address in the block."""
        return str(self.network[number * _BLOCK + 2])

    def gateway6(self, number: int) -> str:
        """Return the host's IPv6 address in the block."""
        return str(self.network6[number * _BLOCK + 1])

    def address6(self, number: int) -> str:
        """Return the sandbox's IPv6 address in the block."""
        return str(self.network6[number * _BLOCK + 2])


def interface(number: int) -> str:
    """Return the name of the slot's interface on the host."""
    return f"atl{number}"


def slot_number(name: str) -> int | None:
    """Return the number in an interface's name, or None for a foreign interface."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def sandbox_address(gateway: str) -> str:
    """Return the sandbox's address in the block where the host has *gateway*."""
    return str(ipaddress.ip_address(gateway) + 1)


def gateway_uid(engine_id: str) -> int:
    """Return the user id of an engine's gateway: one that nobody on the host has.

    From a range that distributions and container managers leave alone (1,879,048,192 and above).
    """
    return 1_900_000_000 + group(engine_id) % 100_000_000


def log_group(engine_id: str) -> int:
    """Return the group of the netlink log that an engine's packet filter writes to."""
    return group(engine_id) % 65_535 + 1


def group(engine_id: str) -> int:
    """Return the interface group of an engine's slots: what its packet filter matches on.

    31 bits of a hash, never 0, which is the group of every ordinary interface.
    """
    digest = hashlib.sha256(engine_id.encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1 | 1
