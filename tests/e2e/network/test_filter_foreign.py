"""Beside the packet filters of Docker, firewalld and ufw, as those set them up."""

import subprocess

import pytest

from atoll.network import foreign
from atoll.network.rules import Redirect
from atoll.network.slots import NetworkSlots
from e2e.network import world
from e2e.network.conftest import Engine, direct

pytestmark = pytest.mark.e2e

DOCKER = """
table ip nat {
  chain PREROUTING {
    type nat hook prerouting priority dstnat; policy accept;
    fib daddr type local tcp dport 80 dnat to 172.17.0.2:80
  }
}
table ip filter {
  chain DOCKER-USER { }
  chain FORWARD {
    type filter hook forward priority filter; policy drop;
    jump DOCKER-USER
    iifname "docker0" accept
    oifname "docker0" ct state established,related accept
  }
}
"""
DOCKER_USER = """
insert rule ip filter DOCKER-USER iifname "atl*" accept
insert rule ip filter DOCKER-USER oifname "atl*" ct state established,related accept
"""
FIREWALLD = """
table inet firewalld {
  chain filter_INPUT {
    type filter hook input priority filter + 10; policy accept;
    ct state established,related accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    reject with icmpx admin-prohibited
  }
  chain filter_FORWARD {
    type filter hook forward priority filter + 10; policy accept;
    ct state established,related accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    reject with icmpx admin-prohibited
  }
}
"""
UFW = """
table ip filter {
  chain INPUT {
    type filter hook input priority filter; policy drop;
    ct state established,related accept
  }
}
"""
LET_IN = 'insert rule ip filter INPUT iifname "atl*" ct status dnat accept'
GATEWAY = Redirect(connections=4_000, names=4_053, uid=1_900_000_001)


def load(script: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=script, text=True, check=True)


async def reached(slots: NetworkSlots, mode: str) -> bool:
    """Tell whether a sandbox gets to the internet, or to what stands for the gateway."""
    slot = await direct(slots, "a")
    await slots.set_mode("a", mode)  # type: ignore[arg-type]
    with world.serve(None, GATEWAY.connections):
        answer = world.ask(slot.netns, world.PUBLIC)
    assert answer in {None, slot.address if mode == "gated" else world.UPLINK}
    return answer is not None


@pytest.fixture
async def slots(engine: Engine) -> NetworkSlots:
    opened = engine()
    await opened.open()
    await opened.set_redirect(GATEWAY)
    return opened


@pytest.mark.parametrize(
    ("script", "gated", "open_way"),
    [(DOCKER, True, False), (DOCKER + DOCKER_USER, True, True), (FIREWALLD, True, False),
     (UFW, False, True), (UFW + LET_IN, True, True)],
    ids=["docker", "docker-user", "firewalld", "ufw", "ufw-let-in"],
)  # fmt: skip
async def test_what_other_filters_stop_and_what_lets_it_through(
    slots: NetworkSlots, script: str, gated: bool, open_way: bool
) -> None:
    """What stops direct connections does not stop those of the gateway, and the other way round."""
    load(script)
    assert await reached(slots, "gated") is gated
    assert await reached(slots, "direct") is open_way
    assert world.ask((await slots.acquire("a")).netns, world.METADATA) is None


@pytest.mark.parametrize(
    ("script", "chain"), [(DOCKER, "ip filter FORWARD"), (UFW, "ip filter INPUT")]
)
async def test_what_stops_sandboxes_is_told_with_what_helps(
    engine: Engine, capsys: pytest.CaptureFixture[str], script: str, chain: str
) -> None:
    load(script)
    await engine().open()
    told = capsys.readouterr().out
    assert chain in told
    assert foreign.SUGGESTIONS[chain.rpartition(" ")[2].lower()][:30] in told
