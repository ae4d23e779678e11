import pytest

from atoll.engine.egress import control
from atoll.engine.engine import Engine
from atoll.errors import (
    ContainerUnavailableError,
    NotSupportedByRuntimeError,
    ValidationFailedError,
)
from atoll.wire.egress import ChangeNetwork, EgressDefaults
from atoll.wire.sandbox import NamespaceConfig, SandboxOptions
from atoll.wire.snapshots import Fork
from integration.engine.calling import run
from integration.engine.conftest import Opener
from integration.engine.scripted import Gateway, World


@pytest.fixture
def gateway(world: World) -> Gateway:
    assert world.gateway
    return world.gateway


def ref(engine: Engine) -> str:
    record = engine.sandbox("N", "box").record
    assert record
    assert record.host_ref
    return record.host_ref


async def test_a_policy_is_in_force_before_the_container_is_made(
    engine: Engine, world: World, gateway: Gateway
) -> None:
    box = engine.sandbox("N", "box")
    told = await control.change(box, ChangeNetwork(allow=["A.test"]))
    assert (told.mode, told.allowed_hosts, world.runtime.starts) == ("gateway", ["a.test"], 0)
    await run(engine, "x")
    assert world.networks.switched == ["gated"]
    assert gateway.modes == ["gated"]
    assert gateway.known[ref(engine)].policy.allowed == ("a.test",)


async def test_a_change_is_an_event(engine: Engine) -> None:
    await control.change(engine.sandbox("N", "box"), ChangeNetwork(allow=["a.test"]))
    events = await engine.store.events.after(("N", "box"), 0)
    assert [(event.type, event.reason) for event in events] == [
        ("created", None),
        ("network", "gateway"),
    ]


async def test_a_change_holds_at_once_and_over_a_sleep(engine: Engine, gateway: Gateway) -> None:
    box = engine.sandbox("N", "box")
    await run(engine, "x")
    before = ref(engine)
    await control.change(box, ChangeNetwork(deny=["bad.test"]))
    assert gateway.known[before].policy.denied == ("bad.test",)
    await box.stop()
    assert not gateway.known
    await run(engine, "x", op="again")
    assert gateway.known[ref(engine)].policy.denied == ("bad.test",)


async def test_the_next_engine_tells_the_gateway_again(
    opener: Opener, world: World, gateway: Gateway
) -> None:
    async with opener() as engine:
        await control.change(engine.sandbox("N", "box"), ChangeNetwork(allow=["a.test"]))
        await run(engine, "x")
    gateway.known.clear()
    async with opener() as engine:
        assert gateway.known[ref(engine)].policy.allowed == ("a.test",)


async def test_what_a_namespace_says_holds_for_what_runs(engine: Engine, gateway: Gateway) -> None:
    await run(engine, "x")
    lists = EgressDefaults(denied_hosts=["bad.test"])
    await engine.configure_namespace("N", NamespaceConfig(egress=lists))
    assert gateway.known[ref(engine)].policy.denied == ("bad.test",)
    with pytest.raises(ValidationFailedError):
        await engine.configure_namespace(
            "N", NamespaceConfig(egress=EgressDefaults(allowed_hosts=["a/b"]))
        )


async def test_a_later_life_of_an_id_begins_without_the_policy(
    engine: Engine, gateway: Gateway
) -> None:
    box = engine.sandbox("N", "box")
    await control.change(box, ChangeNetwork(allow=["a.test"]))
    await run(engine, "x")
    await box.destroy()
    assert not gateway.known
    await run(engine, "x", op="again")
    assert gateway.known[ref(engine)].policy.direct


async def test_a_fork_may_reach_no_more_than_its_origin(engine: Engine) -> None:
    box = engine.sandbox("N", "box")
    await control.change(box, ChangeNetwork(allow=["a.test"]))
    await run(engine, "x")
    await engine.forks.fork(box, Fork(id="copy"))
    copy = engine.sandbox("N", "copy")
    await copy.load()
    assert control.policy(copy).allowed == ("a.test",)


async def test_a_gateway_that_does_not_answer_keeps_a_policy_sandbox_from_starting(
    engine: Engine, world: World, gateway: Gateway
) -> None:
    box = engine.sandbox("N", "box")
    await control.change(box, ChangeNetwork(allow=["a.test"]))
    gateway.failure = ContainerUnavailableError("gone", context={"reason": "network"})
    with pytest.raises(ContainerUnavailableError):
        await run(engine, "x")
    assert not any(world.left().values())


async def test_a_sandbox_whose_tls_is_opened_has_an_authority_of_its_own(
    engine: Engine, gateway: Gateway
) -> None:
    lists = EgressDefaults(intercept_https=True)
    await engine.configure_namespace("N", NamespaceConfig(egress=lists))
    await run(engine, "x")
    put = gateway.known[ref(engine)]
    assert put.authority
    assert "CERTIFICATE" in put.authority.certificate
    box = engine.sandbox("N", "box")
    await box.stop()
    await run(engine, "x", op="again")
    assert gateway.known[ref(engine)].authority == put.authority, "what runs inside trusts it"
    await engine.forks.fork(box, Fork(id="copy"))
    copy = engine.sandbox("N", "copy")
    await copy.load()
    assert copy.record
    assert copy.record.egress.authority is None


async def test_where_there_is_no_gateway_nothing_is_stored(opener: Opener, world: World) -> None:
    world.gateway = None
    async with opener() as engine:
        box = engine.sandbox("N", "box")
        with pytest.raises(NotSupportedByRuntimeError):
            await control.change(box, ChangeNetwork(allow=["a.test"]))
        assert await box.load() is None
        await box.configure(SandboxOptions(enable_internet=False))
        await run(engine, "x")
