import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.network import conntrack, netns, plan
from atoll.network.gateway.protocol import Decision
from atoll.network.slots import NetworkSlots
from atoll.network.watching import Watching
from e2e.network import world
from e2e.network.conftest import Engine, direct

pytestmark = pytest.mark.e2e

GROUP = plan.log_group("one")


class Told:
    def __init__(self) -> None:
        self.lines: list[tuple[str, Decision]] = []

    async def of(self, address: str) -> list[Decision]:
        """Return what is told of an address, when there is something."""
        async with asyncio.timeout(10):
            while not (found := [line for source, line in self.lines if source == address]):
                await asyncio.sleep(0.01)
        return found


@pytest.fixture
async def told(internet: Path) -> AsyncIterator[Told]:
    made = Told()
    watching = Watching(GROUP, lambda source, line: made.lines.append((source, line)))
    assert watching.open()
    yield made
    watching.close()


@pytest.fixture
async def logged(engine: Engine, told: Told) -> NetworkSlots:
    slots = engine()
    await slots.open(log=GROUP)
    return slots


async def test_a_connection_is_told_with_its_bytes_when_it_has_ended(
    logged: NetworkSlots, told: Told
) -> None:
    slot = await direct(logged, "a")
    assert world.ask(slot.netns, world.PUBLIC) == world.UPLINK
    await asyncio.sleep(0.1)
    conntrack.forget(slot.addresses)
    (line,) = await told.of(slot.address)
    assert (line.protocol, line.address, line.port) == ("tcp", world.PUBLIC, 80)
    assert (line.verdict, line.rule) == ("allowed", "enable_internet")
    assert line.bytes_up > 40
    assert line.bytes_down > 40


@pytest.mark.parametrize(
    ("mode", "address", "port", "rule"),
    [("direct", world.METADATA, 80, "private address"),
     ("direct", world.UPLINK, 80, "address of this host or of a sandbox"),
     ("closed", world.PUBLIC, 80, "enable_internet"),
     ("gated", world.PUBLIC, 853, "the gateway lets TCP and DNS out only")],
)  # fmt: skip
async def test_what_is_refused_is_told_with_its_reason(
    logged: NetworkSlots, told: Told, mode: str, address: str, port: int, rule: str
) -> None:
    slot = await logged.acquire("a")
    await logged.set_mode("a", mode)  # type: ignore[arg-type]
    assert world.ask_udp(slot.netns, address, port) is None
    line = (await told.of(slot.address))[0]
    assert (line.verdict, line.rule, line.protocol) == ("refused", rule, "udp")
    assert (line.address, line.port) == (address, port)


async def test_a_flood_is_told_at_a_bounded_rate(logged: NetworkSlots, told: Told) -> None:
    slot = await direct(logged, "a")

    def flood() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
            for port in range(1, 3_000):
                sending.sendto(b"x", (world.METADATA, port))

    await asyncio.to_thread(netns.call_in, slot.netns, flood)
    await told.of(slot.address)
    await asyncio.sleep(0.2)
    assert 100 < len(told.lines) < 1_000


async def test_what_is_open_is_told_at_the_end(engine: Engine, internet: Path) -> None:
    made = Told()
    watching = Watching(GROUP, lambda source, line: made.lines.append((source, line)))
    assert watching.open()
    slots = engine()
    await slots.open(log=GROUP)
    slot = await direct(slots, "a")
    assert world.ask(slot.netns, world.PUBLIC)
    await asyncio.sleep(0.3)
    watching.close()
    assert [line.port for _, line in made.lines] == [80]


async def test_a_group_that_somebody_has_is_left_to_him(told: Told) -> None:
    second = Watching(GROUP, lambda _, __: None)
    assert not second.open()
    second.close()
