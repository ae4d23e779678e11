import asyncio

import pytest

from atoll.engine.bare.parts import BareNetworks
from atoll.engine.egress import effective
from atoll.engine.egress.enforcing import Enforcing, log_name
from atoll.engine.egress.stored import Egress
from atoll.errors import ContainerUnavailableError, NotSupportedByRuntimeError
from atoll.network.policy import SandboxPolicy
from atoll.network_settings import NetworkSettings
from atoll.wire.egress import EgressDefaults
from integration.engine.scripted import Gateway, World


def wanted(*, internet: bool = True, allowed: tuple[str, ...] = ()) -> SandboxPolicy:
    return effective.policy(
        ("N", "box"),
        Egress(allowed=allowed),
        EgressDefaults(),
        NetworkSettings(),
        internet=internet,
    )


OPEN, LISTED, CUT = wanted(), wanted(allowed=("a.test",)), wanted(internet=False)


@pytest.fixture
def gateway(world: World) -> Gateway:
    assert world.gateway
    return world.gateway


@pytest.fixture
def enforcing(world: World, gateway: Gateway) -> Enforcing:
    return Enforcing(world.networks, NetworkSettings(), gateway)


async def test_what_gets_stricter_is_closed_first_and_what_gets_looser_opened_last(
    world: World, gateway: Gateway, enforcing: Enforcing
) -> None:
    for policy in (OPEN, LISTED, OPEN, CUT, OPEN):
        await enforcing.enforce("r", policy)
    assert gateway.modes == ["closed", "gated", "gated", "closed", "closed"]
    assert world.networks.switched == ["direct", "gated", "direct", "closed", "direct"]


async def test_the_same_policy_twice_is_told_once(gateway: Gateway, enforcing: Enforcing) -> None:
    await enforcing.enforce("r", LISTED)
    await enforcing.enforce("r", LISTED)
    (put,) = gateway.told
    assert (put.policy.host_ref, put.policy.allowed) == ("r", ("a.test",))
    assert put.log == log_name("N/box")


async def test_without_an_answer_of_the_gateway_nothing_is_open(
    world: World, gateway: Gateway, enforcing: Enforcing
) -> None:
    await enforcing.enforce("r", OPEN)
    gateway.failure = ContainerUnavailableError("gone")
    with pytest.raises(ContainerUnavailableError):
        await enforcing.enforce("r", LISTED)
    assert world.networks.mode("r") == "gated"
    gateway.failure = None
    await enforcing.enforce("r", LISTED)
    assert gateway.known["r"].policy.allowed == ("a.test",)


async def test_a_sandbox_without_a_policy_does_not_wait_for_the_gateway(
    world: World, gateway: Gateway, enforcing: Enforcing
) -> None:
    gateway.ready = False
    await enforcing.enforce("r", OPEN)
    assert world.networks.mode("r") == "direct"
    await asyncio.gather(*enforcing._telling.values())
    assert gateway.known["r"].policy.direct


async def test_a_container_that_is_gone_is_forgotten_also_while_it_is_told(
    gateway: Gateway, enforcing: Enforcing
) -> None:
    """Its address will be somebody else's."""
    gateway.ready = False
    await enforcing.enforce("r", OPEN)
    await enforcing.forget("r")
    await asyncio.sleep(0)
    assert not gateway.known


async def test_where_there_is_no_gateway_connections_cannot_be_chosen(world: World) -> None:
    bare = Enforcing(world.networks, NetworkSettings(), None)
    await bare.enforce("r", OPEN)
    await bare.enforce("r", CUT)
    with pytest.raises(NotSupportedByRuntimeError, match="enable_internet"):
        await bare.enforce("r", LISTED)
    assert world.networks.mode("r") == "closed"
    await bare.forget("r")


def test_a_log_is_of_one_sandbox() -> None:
    assert log_name("N/a") != log_name("N/b")
    assert len(log_name("N/a")) == 32


async def test_where_nothing_can_be_enforced_nothing_is_promised() -> None:
    """A sandbox that is taken for cut off, and is not, is worse than none."""
    enforcing = Enforcing(BareNetworks(), NetworkSettings(), None)
    await enforcing.enforce("r", OPEN)
    for policy in (LISTED, CUT):
        with pytest.raises(NotSupportedByRuntimeError, match="network around it"):
            await enforcing.enforce("r", policy)
