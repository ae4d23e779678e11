"""Connections as the kernel tells them: packets that begin one, and what one had when it ended. Pure.

The layouts are those of linux/netfilter/nfnetlink_log.h and nfnetlink_conntrack.h. What cannot be
read is passed over: a packet may be anything.
"""

import ipaddress
import struct
from collections.abc import Iterator
from typing import NamedTuple

PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp"}
WITH_PORTS = frozenset({"tcp", "udp"})

_TYPE = 0x3FFF  # without the flags "nested" and "network byte order"
_PAYLOAD, _PREFIX = 9, 10
_TUPLE_ORIG, _COUNTERS_ORIG, _COUNTERS_REPLY = 1, 9, 10
_TUPLE_IP, _TUPLE_PROTO = 1, 2
_BYTES = 2


class Flow(NamedTuple):
    """Who connects to whom. Ports are 0 for protocols without."""

    protocol: str
    source: str
    source_port: int
    address: str
    port: int


class Begun(NamedTuple):
    """A packet that the packet filter logged; *kind* is the prefix its rule has."""

    kind: str
    flow: Flow


class Ended(NamedTuple):
    """A connection that is tracked no more. Both are 0 where the kernel does not count."""

    flow: Flow
    bytes_up: int
    bytes_down: int


def begun(message: bytes) -> Begun | None:
    """Return what a message of the netlink log tells."""
    attributes = dict(_attributes(message))
    flow = packet(attributes.get(_PAYLOAD, b""))
    kind = attributes.get(_PREFIX, b"").rstrip(b"\0").decode("ascii", "replace")
    return Begun(kind, flow) if flow else None


def ended(message: bytes) -> Ended | None:
    """Return what a message of connection tracking tells."""
    attributes = dict(_attributes(message))
    parts = dict(_attributes(attributes.get(_TUPLE_ORIG, b"")))
    addresses = dict(_attributes(parts.get(_TUPLE_IP, b"")))
    protocol = dict(_attributes(parts.get(_TUPLE_PROTO, b"")))
    source = addresses.get(1) or addresses.get(3)
    target = addresses.get(2) or addresses.get(4)
    number = protocol.get(1, b"")
    if source is None or target is None or len(number) != 1:
        return None
    flow = _flow(number[0], source, target, _number(protocol.get(2)), _number(protocol.get(3)))
    return flow and Ended(
        flow, _counted(attributes, _COUNTERS_ORIG), _counted(attributes, _COUNTERS_REPLY)
    )


def packet(data: bytes) -> Flow | None:
    """Return whose packet it is, from its first bytes; None for fragments and what is none."""
    if len(data) >= 20 and data[0] >> 4 == 4:
        header = (data[0] & 15) * 4
        if int.from_bytes(data[6:8], "big") & 0x1FFF:
            return None
        return _with_ports(data[9], data[12:16], data[16:20], data[header:])
    if len(data) >= 40 and data[0] >> 4 == 6:
        return _with_ports(data[6], data[8:24], data[24:40], data[40:])
    return None


def _with_ports(number: int, source: bytes, target: bytes, rest: bytes) -> Flow | None:
    ports = struct.unpack_from("!2H", rest) if len(rest) >= 4 else (0, 0)
    return _flow(number, source, target, *ports)


def _flow(number: int, source: bytes, target: bytes, source_port: int, port: int) -> Flow | None:
    try:
        addresses = str(ipaddress.ip_address(source)), str(ipaddress.ip_address(target))
    except ValueError:
        return None
    protocol = PROTOCOLS.get(number, str(number))
    if protocol not in WITH_PORTS:
        source_port = port = 0
    return Flow(protocol, addresses[0], source_port, addresses[1], port)


def _counted(attributes: dict[int, bytes], which: int) -> int:
    return _number(dict(_attributes(attributes.get(which, b""))).get(_BYTES))


def _number(data: bytes | None) -> int:
    return int.from_bytes(data or b"", "big")


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and value of each attribute; nothing after one that is cut."""
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4 or at + length > len(data):
            return
        yield kind & _TYPE, data[at + 4 : at + length]
        at += (length + 3) & ~3
