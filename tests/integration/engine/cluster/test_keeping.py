"""Sandboxes with leases: who renews them, and when one that nobody reaches is started elsewhere."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from atoll.cluster_settings import ClusterSettings
from atoll.engine.cluster import peers
from atoll.engine.cluster.renewals import MARGIN
from atoll.engine.lifecycle import ending
from atoll.engine.store.record import NODE_LOST
from atoll.errors import NotSupportedByRuntimeError
from atoll.wire.frames import Kind
from atoll.wire.sandbox import NamespaceConfig, State
from integration.engine.cluster.replicas import Pair, Replicas, until
from integration.engine.scripted import Peer, World

LEASE = 1.2
LEASED = ClusterSettings(replicas=True, failover="lease", lease=LEASE)  # type: ignore[arg-type]


class Agents:
    """Answer renewals, unless they are cut off."""

    def __init__(self, world: World) -> None:
        self.renewed: list[float] = []  # what renewals named
        self.answered = 0.0
        self.cut = False
        world.runtime.scripts["lease"] = self._answer

    async def _answer(self, peer: Peer, header: dict[str, Any]) -> None:
        if self.cut:
            await asyncio.sleep(60)
        if header["until"] is not None:
            self.renewed.append(header["until"])
        self.answered = time.monotonic()
        await peer.send(Kind.REPLY, {"now": self.answered, "lease": LEASE})


@pytest.fixture
def agents(world: World, monkeypatch: pytest.MonkeyPatch) -> Agents:
    monkeypatch.setattr(ending, "LOOK", 0.05)
    monkeypatch.setattr(peers, "LOOK", 0.05)
    return Agents(world)


@pytest.fixture
async def leased(replicas: Replicas, agents: Agents) -> AsyncIterator[Pair]:
    async with (
        replicas.opened("a", cluster=LEASED) as first,
        replicas.opened("b", cluster=LEASED) as second,
    ):
        yield first, second


async def test_all_renew_what_runs_and_nobody_what_sleeps(leased: Pair, agents: Agents) -> None:
    box = leased[0].sandbox("n", "box")
    await box.ensure_running()
    await until(lambda: len(agents.renewed) > 4)
    await box.stop()
    await until(lambda: leased[1].sandbox("n", "box").is_in(State.STOPPED))
    seen = len(agents.renewed)
    await asyncio.sleep(LEASE / 3)
    assert len(agents.renewed) == seen


async def test_what_nobody_reaches_is_started_elsewhere_once_its_lease_is_over(
    leased: Pair, agents: Agents, world: World
) -> None:
    first, second = (engine.sandbox("n", "box") for engine in leased)
    old = await first.ensure_running()
    await until(lambda: len(agents.renewed) > 2)
    agents.cut = True
    world.runtime.cut.add(old.host_ref)
    await until(lambda: world.runtime.abandoned == [old.host_ref])
    assert time.monotonic() - agents.answered >= LEASE * MARGIN
    await until(lambda: first.is_in(State.STOPPED) and second.is_in(State.STOPPED))
    assert first.record
    assert first.record.reason == NODE_LOST
    agents.cut = False
    new = await second.ensure_running()
    assert (new.generation, list(world.runtime.running)) == (old.generation + 1, [new.host_ref])


async def test_what_one_replica_reaches_lives_on(
    leased: Pair, agents: Agents, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = leased
    used = await first.sandbox("n", "box").ensure_running()

    class Nowhere:
        async def call(self, *_: object) -> bytes:
            raise TimeoutError

    monkeypatch.setattr(second, "endpoint", lambda _: Nowhere())
    await until(lambda: used.host_ref in second._shared.peers.renewals.told(0.0)["unreached"])  # type: ignore[attr-defined]
    await asyncio.sleep(LEASE * 2)
    assert first.sandbox("n", "box").is_in(State.RUNNING)
    assert not world.runtime.abandoned


async def test_where_its_node_says_that_it_has_ended_nobody_waits(
    leased: Pair, agents: Agents, world: World
) -> None:
    box = leased[0].sandbox("n", "box")
    await box.ensure_running()
    await until(lambda: len(agents.renewed) > 2)
    agents.cut = True
    await until(lambda: box.is_in(State.STOPPED))
    assert not world.runtime.abandoned


async def test_callers_who_come_meanwhile_are_served_by_the_new_one(
    leased: Pair, agents: Agents, world: World
) -> None:
    first, second = (engine.sandbox("n", "box") for engine in leased)
    old = await first.ensure_running()
    agents.cut = True
    world.runtime.cut.add(old.host_ref)
    await until(lambda: first.record and first.record.fencing)
    calls = [asyncio.create_task(box.ensure_running()) for box in (first, second) * 10]
    await until(lambda: world.runtime.abandoned)
    agents.cut = False
    found = {endpoint.host_ref for endpoint in await asyncio.gather(*calls)}
    assert len(found) == 1
    assert found != {old.host_ref}


async def test_an_end_that_its_replica_does_not_see_through_is_seen_through_by_another(
    replicas: Replicas, agents: Agents, world: World
) -> None:
    """The wait begins anew: what the first one knew died with it."""
    async with replicas.opened("a", cluster=LEASED) as first:
        box = first.sandbox("n", "box")
        old = await box.ensure_running()
        agents.cut = True
        world.runtime.cut.add(old.host_ref)
        await until(lambda: box.record and box.record.fencing)
    async with replicas.opened("b", cluster=LEASED) as second:
        await until(lambda: world.runtime.abandoned == [old.host_ref])
        assert time.monotonic() - agents.answered >= LEASE * MARGIN
        agents.cut = False
        with suppress(Exception):
            await second.sandbox("n", "box").stop()


async def test_a_start_that_its_replica_left_is_taken_over_though_nobody_renewed_it(
    replicas: Replicas, agents: Agents
) -> None:
    async with replicas.opened("a", cluster=LEASED) as first:
        await first.sandbox("n", "box").entry.start("left", "layer")
    async with replicas.opened("b", cluster=LEASED) as second:
        assert (await second.sandbox("n", "box").ensure_running()).generation == 2


async def test_a_namespace_asks_for_leases_only_where_somebody_renews_them(
    leased: Pair, replicas: Replicas
) -> None:
    await leased[0].configure_namespace("n", NamespaceConfig(failover="strict"))
    await until(lambda: leased[1].namespaces.get("n", NamespaceConfig()).failover == "strict")
    box = leased[1].sandbox("n", "box")
    await box.ensure_running()
    assert box.record
    assert box.record.in_force
    assert box.record.in_force.lease == 0.0
    with pytest.raises(NotSupportedByRuntimeError):
        await leased[0].configure_namespace("n", NamespaceConfig(warm_pool=1))
    async with replicas.opened("c", cluster=ClusterSettings()) as alone:
        with pytest.raises(NotSupportedByRuntimeError):
            await alone.configure_namespace("n", NamespaceConfig(failover="lease"))
