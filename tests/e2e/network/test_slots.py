import asyncio
import re
import socket
import subprocess
from pathlib import Path

import pytest

from atoll.errors import ContainerUnavailableError, InvalidConfigError
from atoll.network import netns
from atoll.network.plan import interface, slot_number
from atoll.network.slots import NetworkSlots
from e2e.network import world
from e2e.network.conftest import Engine, direct

pytestmark = pytest.mark.e2e


def interfaces() -> set[str]:
    names = re.findall(r"^\d+: ([^:@]+)", _output("ip", "-o", "link"), re.MULTILINE)
    return {name for name in names if slot_number(name) is not None}


def tables() -> list[str]:
    return _output("nft", "list", "tables").splitlines()


def _output(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


async def ready(slots: NetworkSlots) -> None:
    await slots._making.finish()


async def test_a_sandbox_keeps_its_slot_until_it_is_released(slots: NetworkSlots) -> None:
    first = await direct(slots, "a")
    assert await direct(slots, "a") == first
    assert await slots.list() == ["a"]
    await slots.release("a")
    await slots.release("a")
    assert await slots.list() == []
    assert not interfaces()
    assert not first.netns.exists()


async def test_slots_are_prepared_ahead(engine: Engine) -> None:
    slots = engine(prepared=2)
    await slots.open()
    await ready(slots)
    before = interfaces()
    assert len(before) == 2
    slot = await direct(slots, "a")
    assert interface(slot.number) in before
    await ready(slots)
    assert len(interfaces()) == 3


async def test_a_released_slot_is_not_given_to_the_next_sandbox(slots: NetworkSlots) -> None:
    first = await direct(slots, "a")
    await slots.release("a")
    second = await direct(slots, "b")
    assert first.number != second.number
    assert first.address != second.address


async def test_low_ports_and_ping_need_no_capability_inside(slots: NetworkSlots) -> None:
    slot = await direct(slots, "a")

    def settings() -> tuple[str, str]:
        base = Path("/proc/sys/net/ipv4")
        low = (base / "ip_unprivileged_port_start").read_text()
        return low.strip(), (base / "ping_group_range").read_text().strip()

    assert netns.call_in(slot.netns, settings) == ("0", "0\t2147483647")


async def test_a_new_engine_finds_the_slots_of_one_that_was_killed(engine: Engine) -> None:
    killed = engine(prepared=1)
    await killed.open()
    kept, orphan = await direct(killed, "kept"), await direct(killed, "orphan")
    await killed.set_mode("kept", "closed")
    await ready(killed)
    killed._closing = True

    slots = engine()
    await slots.open()
    assert await slots.list() == ["kept", "orphan"]
    assert await slots.acquire("kept") == kept
    assert world.ask(kept.netns, world.PUBLIC) is None, "still without internet"
    assert world.ask(orphan.netns, world.PUBLIC) == world.UPLINK

    await slots.adopt(["kept"])
    assert await slots.list() == ["kept"]
    assert interfaces() == {interface(kept.number)}
    killed._ready.clear()
    killed._used.clear()


async def test_engines_of_one_host_share_addresses_without_a_clash(engine: Engine) -> None:
    cidr = "10.77.0.0/26"
    one, two = engine("one", cidr=cidr), engine("two", cidr=cidr)
    await one.open()
    await two.open()
    taken = [await direct(one if n % 2 else two, f"s{n}") for n in range(16)]
    assert len({slot.address for slot in taken}) == 16
    with pytest.raises(ContainerUnavailableError) as caught:
        await direct(one, "one too many")
    assert caught.value.context["reason"] == "network"
    await two.release("s0")
    assert (await direct(one, "now there is room")).address == taken[0].address


async def test_closing_one_engine_leaves_the_other_its_policy(engine: Engine) -> None:
    one, two = engine("one"), engine("two")
    await one.open()
    await two.open()
    slot = await direct(two, "a")
    await one.close()
    assert tables() == ["table inet atoll_two"]
    assert world.ask(slot.netns, world.PUBLIC) == world.UPLINK
    assert world.ask(slot.netns, world.METADATA) is None


async def test_the_policy_stays_while_a_sandbox_runs_without_an_engine(
    slots: NetworkSlots,
) -> None:
    slot = await direct(slots, "a")
    await slots.close()
    assert world.ask(slot.netns, world.PUBLIC) == world.UPLINK
    assert world.ask(slot.netns, world.METADATA) is None


async def test_other_tables_are_never_touched(slots: NetworkSlots, engine: Engine) -> None:
    foreign = (
        "table ip filter { chain FORWARD { type filter hook forward priority 0; policy accept; }; }"
    )
    subprocess.run(["nft", foreign], check=True)
    before = _output("nft", "list", "table", "ip", "filter")
    again = engine()
    await again.open()
    await again.close()
    assert _output("nft", "list", "table", "ip", "filter") == before
    assert tables() == ["table ip filter"]


async def test_a_flushed_packet_filter_is_back_soon(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart of the host's nftables service flushes every table."""
    monkeypatch.setattr("atoll.network.filter.GUARD_INTERVAL", 0.05)
    slots = engine()
    await slots.open()
    slot, offline = await direct(slots, "a"), await direct(slots, "b")
    await slots.set_mode("b", "closed")
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    assert world.ask(None, world.METADATA) == world.UPLINK
    async with asyncio.timeout(5):
        while not tables():
            await asyncio.sleep(0.01)
    assert world.ask(slot.netns, world.PUBLIC) == world.UPLINK
    assert world.ask(slot.netns, world.METADATA) is None
    assert world.ask(offline.netns, world.PUBLIC) is None


async def test_a_foreign_filter_that_stops_sandboxes_is_told(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = "table ip filter { chain F { type filter hook forward priority 0; policy drop; }; }"
    subprocess.run(["nft", foreign], check=True)
    await engine().open()
    assert "ip filter F" in capsys.readouterr().out


async def test_a_range_that_the_host_uses_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidConfigError, match="up0"):
        await engine(cidr="198.51.0.0/16").open()


async def test_a_slot_whose_taker_was_cancelled_goes_to_the_next(slots: NetworkSlots) -> None:
    taker = asyncio.create_task(slots.acquire("a"))
    await asyncio.sleep(0.001)
    taker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taker
    await ready(slots)
    left = interfaces()
    slot = await direct(slots, "b")
    assert left <= {interface(slot.number)}
    assert await slots.list() == ["b"]


async def test_traffic_is_counted_as_the_sandbox_sees_it(slots: NetworkSlots) -> None:
    slot = await direct(slots, "a")

    def send() -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as sending:
            for _ in range(100):
                sending.sendto(bytes(1_000), (world.PUBLIC, 9))

    netns.call_in(slot.netns, send)
    up, down = await slots.traffic("a")
    assert 100_000 < up < 120_000
    assert down < 20_000
    assert await slots.traffic("nobody") == (0, 0)


async def test_many_sandboxes_start_at_once(engine: Engine) -> None:
    slots = engine(prepared=2)
    await slots.open()
    made = await asyncio.gather(*(direct(slots, f"s{n}") for n in range(12)))
    assert len({slot.address for slot in made}) == 12
    assert {world.ask(slot.netns, world.PUBLIC) for slot in made} == {world.UPLINK}
