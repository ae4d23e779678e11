"""Security probes 11 to 14 and 26 at the packet layer, from inside a slot. Each has a counterpart
that is reachable, so a probe that reaches nothing at all would fail."""

import socket
import subprocess
from pathlib import Path

import pytest

from atoll.network import netns
from atoll.network.slots import NetworkSlots
from e2e.network import world
from e2e.network.conftest import Engine, direct

pytestmark = pytest.mark.e2e


async def test_a_sandbox_reaches_the_internet_behind_the_hosts_address(slots: NetworkSlots) -> None:
    slot = await direct(slots, "a")
    assert world.ask(slot.netns, world.PUBLIC) == world.UPLINK
    assert world.ask_udp(slot.netns, world.PUBLIC, 80) == world.UPLINK


@pytest.mark.parametrize("address", world.PRIVATE)
async def test_private_shared_and_metadata_addresses_are_out_of_reach(
    slots: NetworkSlots, address: str
) -> None:
    slot = await direct(slots, "a")
    for reached in (world.ask(None, address), world.ask_udp(None, address)):
        assert reached == world.UPLINK, "the host itself reaches it"
    assert world.ask(slot.netns, address) is None
    assert world.ask_udp(slot.netns, address) is None


async def test_the_resolver_answers_dns_and_nothing_else(slots: NetworkSlots) -> None:
    slot = await direct(slots, "a")
    assert slot.nameservers == (world.RESOLVER,)
    assert world.ask_udp(slot.netns, world.RESOLVER, 53) == world.UPLINK
    assert world.ask(slot.netns, world.RESOLVER, 53) == world.UPLINK
    assert world.ask(slot.netns, world.RESOLVER, 80) is None


async def test_no_address_of_the_host_is_reachable(slots: NetworkSlots) -> None:
    slot = await direct(slots, "a")
    for address in (slot.gateway, world.UPLINK, "127.0.0.1"):
        with world.serve(None, 80, address), world.serve_udp(None, 53, address):
            assert world.ask(None, address) == world.ask_udp(None, address) == address
            assert world.ask(slot.netns, address) is None
            assert world.ask_udp(slot.netns, address) is None


async def test_without_the_packet_filter_the_host_is_reachable(slots: NetworkSlots) -> None:
    """The probes above see a hole when there is one."""
    slot, other = await direct(slots, "a"), await direct(slots, "b")
    subprocess.run(["nft", "delete", "table", "inet", "atoll_one"], check=True)
    with world.serve(None, 80), world.serve_udp(None, 53, world.UPLINK):
        assert world.ask(slot.netns, slot.gateway) == slot.address
        assert world.ask_udp(slot.netns, world.UPLINK) == slot.address
    with world.serve(other.netns, 80), world.serve_udp(other.netns, 53, other.address):
        assert world.ask(slot.netns, other.address) == slot.address
        assert world.ask_udp(slot.netns, other.address) == slot.address


async def test_a_host_that_is_the_resolver_answers_dns_only(engine: Engine) -> None:
    slots = engine(nameservers=(world.UPLINK,))
    await slots.open()
    slot = await direct(slots, "a")
    with world.serve(None, 80), world.serve(None, 53), world.serve_udp(None, 53, world.UPLINK):
        assert world.ask_udp(slot.netns, world.UPLINK, 53) == slot.address
        assert world.ask(slot.netns, world.UPLINK, 53) == slot.address
        assert world.ask(slot.netns, world.UPLINK, 80) is None
        await slots.set_mode("a", "closed")
        assert world.ask_udp(slot.netns, world.UPLINK, 53) is None


async def test_sandboxes_cannot_reach_each_other(engine: Engine, slots: NetworkSlots) -> None:
    second = engine("two")
    await second.open()
    slot, same = await direct(slots, "a"), await direct(slots, "b")
    other = await direct(second, "c")
    for neighbour in (same, other):
        with (
            world.serve(neighbour.netns, 80),
            world.serve_udp(neighbour.netns, 53, neighbour.address),
        ):
            assert world.ask_udp(neighbour.netns, neighbour.address) == neighbour.address
            assert world.ask(None, neighbour.address), "the host itself reaches it"
            assert world.ask(slot.netns, neighbour.address) is None
            assert world.ask_udp(slot.netns, neighbour.address) is None


async def test_nobody_outside_reaches_a_sandbox_but_the_host_does(
    slots: NetworkSlots, internet: Path
) -> None:
    slot = await direct(slots, "a")
    subprocess.run(
        [
            "nsenter",
            f"--net={internet}",
            "ip",
            "route",
            "add",
            "10.213.0.0/16",
            "via",
            world.UPLINK,
        ],
        check=True,
    )
    with world.serve(slot.netns, 80):
        assert world.ask(internet, slot.address) is None
        assert world.ask(None, slot.address) == slot.gateway


@pytest.mark.parametrize("source", ["neighbour", "gateway", world.UPLINK, "8.8.8.8", "127.0.0.1"])
async def test_a_forged_source_address_goes_nowhere(
    slots: NetworkSlots, internet: Path, source: str
) -> None:
    slot, neighbour = await direct(slots, "a"), await direct(slots, "b")
    forged = {"neighbour": neighbour.address, "gateway": slot.gateway}.get(source, source)
    with netns.call_in(internet, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sink:
        sink.bind((world.PUBLIC, 9_999))
        sink.settimeout(2)
        world.send_spoofed(slot.netns, forged, world.PUBLIC, 9_999, b"forged")
        world.send_spoofed(slot.netns, slot.address, world.PUBLIC, 9_999, b"own")
        assert sink.recv(100) == b"own"


async def test_the_host_answers_arp_for_the_gateway_only(slots: NetworkSlots) -> None:
    slot = await direct(slots, "a")

    def neighbour(address: str) -> str:
        probe = ["ip", "neigh", "show", address]
        subprocess.run(["ip", "route", "replace", f"{address}/32", "dev", "eth0"], check=True)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
            sending.sendto(b"?", (address, 9))
        world.ask(None, address)
        return subprocess.run(probe, capture_output=True, text=True, check=True).stdout

    assert "lladdr" in netns.call_in(slot.netns, lambda: neighbour(slot.gateway))
    assert "lladdr" not in netns.call_in(slot.netns, lambda: neighbour(world.UPLINK))


async def test_there_is_no_ipv6_but_on_loopback(slots: NetworkSlots) -> None:
    slot = await direct(slots, "a")

    def addresses() -> str:
        return Path("/proc/thread-self/net/if_inet6").read_text()

    lines = netns.call_in(slot.netns, addresses).splitlines()
    assert [line.split()[-1] for line in lines] == ["lo"]
    assert f"atl{slot.number}" not in addresses()
    with netns.call_in(
        slot.netns, lambda: socket.create_server(("::1", 80), family=socket.AF_INET6)
    ):
        assert netns.call_in(slot.netns, lambda: _connects("::1"))


def _connects(address: str) -> bool:
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as made:
        return made.connect_ex((address, 80)) == 0


async def test_internet_is_switched_off_and_on_at_run_time(
    slots: NetworkSlots, internet: Path
) -> None:
    slot, other = await direct(slots, "a"), await direct(slots, "b")
    with (
        netns.call_in(internet, lambda: socket.create_server((world.PUBLIC, 7_000))) as server,
        netns.call_in(
            slot.netns, lambda: socket.create_connection((world.PUBLIC, 7_000), 1)
        ) as own,
    ):
        answering, _ = server.accept()
        await slots.set_mode("a", "closed")
        own.sendall(b"secret")
        answering.settimeout(0.5)
        with pytest.raises(TimeoutError):
            answering.recv(10)
        answering.close()
    assert world.ask(slot.netns, world.PUBLIC) is None
    assert world.ask_udp(slot.netns, world.RESOLVER, 53) is None
    assert world.ask(other.netns, world.PUBLIC) == world.UPLINK
    await slots.set_mode("a", "direct")
    assert world.ask(slot.netns, world.PUBLIC) == world.UPLINK


WAYS_OF_DNS = [
    (world.RESOLVER, 53), (world.PUBLIC, 53), (world.PUBLIC, 853), (world.RESOLVER, 853),
]  # fmt: skip


async def test_dns_is_no_way_out_without_internet(slots: NetworkSlots) -> None:
    """13: a name that is looked up tells whoever answers for it what it says."""
    slot = await direct(slots, "a")
    await slots.set_mode("a", "closed")
    for address, port in WAYS_OF_DNS:
        assert world.ask_udp(slot.netns, address, port) is None, (address, port)
        assert world.ask(slot.netns, address, port) is None, (address, port)
    await slots.set_mode("a", "direct")
    reached = [world.ask_udp(slot.netns, *way) for way in WAYS_OF_DNS]
    assert reached == [world.UPLINK] * 3 + [None], "its resolver answers DNS and nothing else"
    assert world.ask(slot.netns, world.PUBLIC, 853) == world.UPLINK


async def test_a_dns_exchange_under_way_ends_with_the_internet(slots: NetworkSlots) -> None:
    """13: the packet filter knows the flow already when internet is switched off."""
    slot = await direct(slots, "a")

    def socket_inside() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.settimeout(0.5)
        made.connect((world.PUBLIC, 53))
        return made

    with netns.call_in(slot.netns, socket_inside) as asking:
        assert _asked(asking, b"?") == world.UPLINK
        await slots.set_mode("a", "closed")
        with pytest.raises(OSError, match=r"timed out|No route to host"):
            _asked(asking, b"secret.example.com")


def _asked(asking: socket.socket, question: bytes) -> str:
    asking.send(question)
    return asking.recv(100).decode()


@pytest.mark.parametrize(
    "spelled",
    [
        "2852039166", "0xa9fea9fe", "0xA9.0xFE.0xA9.0xFE", "0251.0376.0251.0376", "169.254.43518",
        "169.16689662", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe",
    ],
)  # fmt: skip
async def test_another_spelling_of_an_address_is_that_address(
    slots: NetworkSlots, spelled: str
) -> None:
    """14: no proxy reads names here; the filter sees what a program inside made of them."""
    slot = await direct(slots, "a")
    assert world.ask(None, spelled) == world.UPLINK, "the host itself reaches it"
    assert world.ask(slot.netns, spelled) is None


async def test_a_sandbox_cannot_fill_the_hosts_connection_table(slots: NetworkSlots) -> None:
    slot, other = await direct(slots, "a"), await direct(slots, "b")

    def flood() -> int:
        refused = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            for port in range(1, 6_000):
                try:
                    sending.sendto(b"x", (world.PUBLIC, port))
                except OSError:
                    refused += 1
        return refused

    netns.call_in(slot.netns, flood)
    count = int(Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text())
    assert 3_000 < count < 4_500
    assert world.ask(other.netns, world.PUBLIC) == world.UPLINK
