"""What the network lets through: the host, its neighbours, the sandbox's own neighbours, metadata.

What counts is an answer. Silence says nothing: refusals travel as ICMP errors, of which the kernel
sends one a second to each sandbox.
"""

import concurrent.futures
import socket
from collections.abc import Sequence

from atoll.probes.inside.attempts import Attempts, text

_SECONDS = 1.5
METADATA = (
    ("169.254.169.254", 80),  # AWS, GCP, Azure, OpenStack
    ("169.254.170.2", 80),  # credentials of ECS tasks
    ("100.100.100.200", 80),  # Alibaba Cloud
    ("192.0.0.192", 80),  # Oracle Cloud
    ("fd00:ec2::254", 80),
    ("fe80::a9fe:a9fe", 80),
    ("::ffff:169.254.169.254", 80),
)
METADATA_NAMES = ("metadata.google.internal", "metadata", "instance-data")
RANGES = (
    ("10.0.0.1", 80), ("172.16.0.1", 80), ("192.168.0.1", 80), ("192.168.1.1", 80),
    ("100.64.0.1", 80), ("198.18.0.1", 80), ("224.0.0.1", 80), ("240.0.0.1", 80),
    ("fd00::1", 80), ("fe80::1", 80), ("2001:db8::1", 80),
)  # fmt: skip
"""Addresses of ranges that are nobody's on the internet."""


def metadata() -> list[str]:
    """11: no metadata service of a cloud, by its address or by its name."""
    targets = [*METADATA, *((name, 80) for name in METADATA_NAMES)]
    return _reached(targets)


def east_west(
    addresses: Sequence[str], ports: Sequence[int], neighbours: Sequence[Sequence[object]]
) -> list[str]:
    """10 and 12: nothing of the host and of other sandboxes, and no private address.

    Args:
        addresses: of the host.
        ports: that something listens on there, the engine's among them.
        neighbours: address and port of a server in another sandbox.
    """
    own = ("127.0.0.1", "::1")
    host = [(address, port) for address in (*addresses, *own) for port in ports]
    others = [(str(address), int(str(port))) for address, port in neighbours]
    return _reached([*host, *others, *RANGES])


def spoofing() -> list[str]:
    """12: frames of one's own making, for ARP and neighbour discovery, cannot be sent."""
    tries = Attempts()
    kinds = [(17, socket.SOCK_RAW, 0x0300), (17, socket.SOCK_DGRAM, 0x0300)]
    kinds += [(socket.AF_INET, socket.SOCK_RAW, protocol) for protocol in (1, 6, 17, 255)]
    kinds += [(socket.AF_INET6, socket.SOCK_RAW, 58)]
    for family, kind, protocol in kinds:
        tries.refused(f"raw socket {family} {kind:d} {protocol}", _made, family, kind, protocol)
    return tries.violations


def _made(family: int, kind: int, protocol: int) -> None:
    socket.socket(family, kind, protocol).close()


def _reached(targets: Sequence[tuple[str, int]]) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(max_workers=64) as pool:
        told = list(pool.map(_connects, targets))
    return [f"{host}:{port}" for (host, port), yes in zip(targets, told, strict=True) if yes]


def _connects(target: tuple[str, int]) -> bool:
    """Tell whether somebody answers, or waits to be asked: a gateway takes connections to reset them."""
    try:
        made = socket.create_connection(target, timeout=_SECONDS)
    except OSError:
        return False
    with made:
        try:
            made.recv(1)
        except TimeoutError:
            return True
        except OSError:
            return False
    return True


RESOLVERS = ("1.1.1.1", "8.8.8.8", "9.9.9.9")
_QUESTION = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0%s\x07example\x03com\0\0\1\0\1"


def resolving(label: str) -> list[str]:
    """13: neither the sandbox's own resolvers nor public ones take a question.

    Args:
        label: of a name below example.com that nobody asked for before.
    """
    tries = Attempts()
    tries.refused("resolved a name", socket.getaddrinfo, f"{label}.example.com", 80)
    question = _QUESTION % (bytes([len(label)]) + label.encode())
    for address in (*_own_resolvers(), *RESOLVERS):
        tries.refused(f"{address} by UDP", _ask, address, question)
    return tries.violations + _reached([(a, port) for a in RESOLVERS for port in (53, 853, 443)])


def _own_resolvers() -> list[str]:
    words = [line.split() for line in text("/etc/resolv.conf").splitlines()]
    return [word[1] for word in words if word[:1] == ["nameserver"] and len(word) > 1]


def _ask(address: str, question: bytes) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.settimeout(_SECONDS)
        asking.connect((address, 53))
        asking.send(question)
        asking.recv(512)
