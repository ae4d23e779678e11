"""IPv6 of slots: probes 11 and 12 over IPv6, and what a sandbox can do to the host's neighbours."""

import socket
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from atoll.network import netns, plan
from atoll.network.slots import NetworkSlots
from atoll.network_settings import NetworkSettings
from e2e.network import internet as net
from e2e.network import world
from e2e.network.conftest import direct

pytestmark = pytest.mark.e2e


@pytest.fixture
def web(folder: Path) -> Iterator[net.Internet]:
    with net.internet(folder) as made:
        yield made


async def opened(folder: Path, ipv6: str) -> NetworkSlots:
    settings = NetworkSettings(nameservers=(net.RESOLVER,), prepared=0, ipv6=ipv6)  # type: ignore[arg-type]
    slots = NetworkSlots(settings, "one", base=folder / "netns")
    await slots.open()
    return slots


@pytest.fixture
async def slots(folder: Path, web: net.Internet) -> AsyncIterator[NetworkSlots]:
    made = await opened(folder, "on")
    yield made
    await made.adopt(())
    await made.close()


def reach(place: Path | None, address: str, port: int = net.ECHO) -> bool:
    """Tell whether a TCP server answers."""

    def call() -> bool:
        try:
            with socket.create_connection((address, port), timeout=1.5) as made:
                made.sendall(b"x")
                return made.recv(1) == b"x"
        except OSError:
            return False

    return bool(netns.call_in(place, call)) if place else call()


async def test_the_internet_is_reached_behind_the_hosts_address(
    slots: NetworkSlots, web: net.Internet
) -> None:
    slot = await direct(slots, "a")
    assert slot.addresses == (slot.address, slot.address6)
    assert reach(slot.netns, net.PUBLIC6)
    assert web.connections[-1][1] == net.UPLINK6


@pytest.mark.parametrize("address", net.PRIVATE6)
async def test_private_and_metadata_addresses_are_out_of_reach(
    slots: NetworkSlots, address: str
) -> None:
    slot = await direct(slots, "a")
    assert reach(None, address), "the host itself reaches it"
    assert not reach(slot.netns, address)


async def test_neighbours_and_the_host_are_out_of_reach(slots: NetworkSlots) -> None:
    slot, other = await direct(slots, "a"), await direct(slots, "b")
    with netns.call_in(
        other.netns, lambda: socket.create_server(("::", 99), family=socket.AF_INET6)
    ):
        assert not reach(slot.netns, other.address6, 99)
    with socket.create_server(("::", 98), family=socket.AF_INET6):
        gateway = plan.Plan("10.213.0.0/16").gateway6(slot.number)
        for address in (net.UPLINK6, gateway):
            assert not reach(slot.netns, address, 98)
    assert reach(slot.netns, net.PUBLIC6)


async def test_a_forged_source_goes_nowhere(slots: NetworkSlots, web: net.Internet) -> None:
    slot, other = await direct(slots, "a"), await direct(slots, "b")

    def listen() -> socket.socket:
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        made.bind((net.PUBLIC6, 9_999))
        made.settimeout(3)
        return made

    def send(source: str, payload: bytes) -> None:
        target = socket.inet_pton(socket.AF_INET6, net.PUBLIC6)
        length = 8 + len(payload)
        pseudo = socket.inet_pton(socket.AF_INET6, source) + target + struct.pack("!2I", length, 17)
        udp = struct.pack("!4H", 4_444, 9_999, length, 0) + payload
        packed = pseudo + udp + bytes(len(payload) % 2)
        total = sum(struct.unpack(f"!{len(packed) // 2}H", packed))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        udp = struct.pack("!4H", 4_444, 9_999, length, ~total & 0xFFFF) + payload
        header = struct.pack("!IHBB", 6 << 28, length, 17, 64) + pseudo[:32]
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            raw.sendto(header + udp, (net.PUBLIC6, 0))

    assert reach(slot.netns, net.PUBLIC6)  # who the next hop is, is known from here on
    with netns.call_in(web.namespace, listen) as sink:
        for source in (other.address6, net.UPLINK6, "2001:db8::1"):
            netns.call_in(slot.netns, lambda source=source: send(source, b"forged"))  # type: ignore[misc]
        netns.call_in(slot.netns, lambda: send(slot.address6, b"own"))
        assert sink.recv(100) == b"own"


async def test_a_sandbox_cannot_fill_the_hosts_table_of_neighbours(slots: NetworkSlots) -> None:
    slot = await direct(slots, "a")

    def flood() -> None:
        gateway = socket.inet_pton(
            socket.AF_INET6, plan.Plan("10.213.0.0/16").gateway6(slot.number)
        )
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        raw.bind(("eth0", 0))
        own = raw.getsockname()[4]
        for n in range(2_000):
            source = socket.inet_pton(socket.AF_INET6, f"fe80::{n + 1:x}")
            body = gateway + b"\1\1" + own
            message = struct.pack("!BBHI", 135, 0, 0, 0) + body
            pseudo = source + gateway + struct.pack("!2I", len(message), 58)
            total = sum(struct.unpack(f"!{len(pseudo + message) // 2}H", pseudo + message))
            while total >> 16:
                total = (total & 0xFFFF) + (total >> 16)
            message = message[:2] + struct.pack("!H", ~total & 0xFFFF) + message[4:]
            header = struct.pack("!IHBB", 6 << 28, len(message), 58, 255) + source + gateway
            raw.send(b"\x33\x33\xff" + gateway[13:] + own + b"\x86\xdd" + header + message)
        raw.close()

    netns.call_in(slot.netns, flood)
    shown = subprocess.run(["ip", "-6", "neigh"], capture_output=True, text=True, check=True)
    entries = [line for line in shown.stdout.splitlines() if f"atl{slot.number}" in line]
    assert 1 <= len(entries) < 60


async def test_where_the_host_does_not_forward_it_there_is_none(
    folder: Path, web: net.Internet
) -> None:
    slots = await opened(folder, "auto")
    slot = await direct(slots, "a")
    try:
        assert slot.address6 == ""
        assert not reach(slot.netns, net.PUBLIC6)
        assert world.ask(slot.netns, net.PUBLIC, net.BANNER) is not None
    finally:
        await slots.adopt(())
        await slots.close()
