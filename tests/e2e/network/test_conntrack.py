import socket
from pathlib import Path

import pytest

from atoll.network import conntrack, netns
from atoll.network.slots import NetworkSlots
from e2e.network import world
from e2e.network.conftest import direct

pytestmark = pytest.mark.e2e


def tracked(address: str) -> int:
    lines = Path("/proc/thread-self/net/nf_conntrack").read_text().splitlines()
    return sum(f"src={address} " in line for line in lines)


async def test_connections_of_one_address_are_forgotten_and_no_others(slots: NetworkSlots) -> None:
    one, two = await direct(slots, "a"), await direct(slots, "b")
    for slot in (one, two):
        with netns.call_in(slot.netns, lambda: socket.socket(type=socket.SOCK_DGRAM)) as sending:
            sending.sendto(b"x", (world.PUBLIC, 9))
        assert tracked(slot.address) == 1
    conntrack.forget([one.address])
    assert (tracked(one.address), tracked(two.address)) == (0, 1)
    conntrack.forget(["10.1.1.1", "fd00::1"])


async def test_nothing_is_tracked_of_a_slot_that_was_released(slots: NetworkSlots) -> None:
    slot = await direct(slots, "a")
    assert world.ask(slot.netns, world.PUBLIC)
    await slots.release("a")
    assert tracked(slot.address) == 0
