import subprocess

import pytest

from atoll.network.slots import NetworkSlots
from e2e.network import world
from e2e.network.conftest import Engine, direct

pytestmark = pytest.mark.e2e


async def test_a_new_slot_reaches_nothing(slots: NetworkSlots) -> None:
    """Whoever gives it to a sandbox says what holds before the first byte can leave."""
    slot = await slots.acquire("a")
    assert slots.mode("a") == "closed"
    assert world.ask(slot.netns, world.PUBLIC) is None
    assert world.ask_udp(slot.netns, world.RESOLVER) is None


async def test_a_gated_slot_without_a_gateway_reaches_nothing(slots: NetworkSlots) -> None:
    slot = await direct(slots, "a")
    await slots.set_mode("a", "gated")
    for address in (world.PUBLIC, world.RESOLVER):
        assert world.ask(slot.netns, address) is None
        assert world.ask_udp(slot.netns, address) is None


async def test_a_mode_is_changed_also_where_somebody_removed_the_table(slots: NetworkSlots) -> None:
    slot = await direct(slots, "a")
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    await slots.set_mode("a", "closed")
    assert world.ask(slot.netns, world.PUBLIC) is None


async def test_modes_of_slots_that_are_gone_are_forgotten(engine: Engine) -> None:
    """The name of an interface is used again; its next owner starts closed."""
    slots = engine()
    await slots.open()
    slot = await direct(slots, "a")
    subprocess.run(["ip", "link", "del", f"atl{slot.number}"], check=True)
    again = engine()
    await again.open()
    shown = subprocess.run(["nft", "list", "ruleset"], check=True, capture_output=True, text=True)
    assert f"atl{slot.number}" not in shown.stdout
    await slots.adopt([])
