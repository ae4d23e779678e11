import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.network import flows
from atoll.network.flows import Begun, Ended, Flow

FOUR = Flow("tcp", "10.213.0.2", 40_000, "203.0.113.80", 443)
SIX = Flow("udp", "fd00::2", 40_000, "2001:db8::1", 53)


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def header(flow: Flow, number: int) -> bytes:
    source, target = map(ipaddress.ip_address, (flow.source, flow.address))
    ports = struct.pack("!2H", flow.source_port, flow.port)
    if source.version == 4:
        return (
            b"\x45" + bytes(8) + bytes([number]) + bytes(2) + source.packed + target.packed + ports
        )
    return b"\x60" + bytes(5) + bytes([number, 64]) + source.packed + target.packed + ports


def tracked(flow: Flow, number: int, up: int, down: int) -> bytes:
    source, target = map(ipaddress.ip_address, (flow.source, flow.address))
    first = 1 if source.version == 4 else 3
    addresses = attribute(first, source.packed) + attribute(first + 1, target.packed)
    protocol = (
        attribute(1, bytes([number]))
        + attribute(2, flow.source_port.to_bytes(2, "big"))
        + attribute(3, flow.port.to_bytes(2, "big"))
    )
    return (
        attribute(0x8001, attribute(0x8001, addresses) + attribute(0x8002, protocol))
        + attribute(0x8009, attribute(1, bytes(8)) + attribute(2, up.to_bytes(8, "big")))
        + attribute(0x800A, attribute(2, down.to_bytes(8, "big")))
    )


@pytest.mark.parametrize(("flow", "number"), [(FOUR, 6), (SIX, 17)])
def test_both_tell_the_same_connection(flow: Flow, number: int) -> None:
    """By this one finds the other: what began, and what it had when it ended."""
    message = attribute(10, b"out\0") + attribute(9, header(flow, number))
    assert flows.begun(message) == Begun("out", flow)
    assert flows.ended(tracked(flow, number, 7, 9)) == Ended(flow, 7, 9)


def test_protocols_without_ports_have_none() -> None:
    message = attribute(10, b"gated\0") + attribute(9, header(FOUR, 1))
    assert flows.begun(message) == Begun("gated", Flow("icmp", FOUR.source, 0, FOUR.address, 0))
    found = flows.packet(header(FOUR, 47))
    assert found
    assert found.protocol == "47"


def test_a_later_fragment_is_nobodys() -> None:
    data = bytearray(header(FOUR, 6))
    data[7] = 1
    assert flows.packet(bytes(data)) is None


@given(st.binary(max_size=200))
def test_what_cannot_be_read_is_passed_over(data: bytes) -> None:
    flows.begun(data)
    flows.ended(data)
    flows.packet(data)


@given(st.data())
def test_a_message_that_is_cut_or_changed_is_too(data: st.DataObject) -> None:
    whole = tracked(SIX, 17, 1, 2) + attribute(9, header(SIX, 17))
    broken = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for at in data.draw(st.lists(st.integers(0, max(0, len(broken) - 1)), max_size=4)):
        if broken:
            broken[at] = data.draw(st.integers(0, 255))
    flows.begun(bytes(broken))
    flows.ended(bytes(broken))
