import asyncio
from typing import cast

import pytest

from atoll.engine.cluster import peers
from atoll.engine.cluster.peers import LEASE, LeasePeers, Vitals
from atoll.runtime.kubernetes.api import Api
from objects import Objects


def test_a_replica_lives_as_long_as_it_is_heard_of() -> None:
    vitals = Vitals(0)
    vitals.heard("a", 100)
    assert vitals.alive("a", 100 + LEASE - 1)
    assert not vitals.alive("a", 100 + LEASE)


def test_one_never_heard_of_may_just_have_begun() -> None:
    vitals = Vitals(0)
    assert vitals.alive("new", 100)
    assert not vitals.alive("new", 100 + LEASE)
    assert not vitals.alive("", 0)


def test_who_heard_nothing_takes_nobody_for_dead() -> None:
    vitals = Vitals(0)
    vitals.heard("a", 0)
    vitals.deaf()
    assert vitals.alive("a", 1000)
    vitals.listening(1000)
    assert vitals.alive("a", 1000 + LEASE - 1)
    assert not vitals.alive("a", 1000 + LEASE)


async def test_replicas_know_each_other_and_goodbyes_count_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "RENEW", 0.005)
    cluster, now = Objects(), [0.0]
    first, second = (LeasePeers(cast("Api", cluster), "n", actor, lambda: now[0]) for actor in "ab")
    await first.open()
    await second.open()
    async with asyncio.timeout(20):
        for _ in range(10):
            now[0] += LEASE / 2
            seen = cluster.writes
            while cluster.writes < seen + 4:
                await asyncio.sleep(0.001)
            assert first.alive("b")
            assert second.alive("a")
        await second.close()
        while first.alive("b"):
            await asyncio.sleep(0.001)
    await first.close()
    assert {one["spec"]["holderIdentity"] for one in cluster.there.values()} == {""}


async def test_a_lease_that_somebody_removed_is_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "RENEW", 0.005)
    cluster = Objects()
    found = LeasePeers(cast("Api", cluster), "n", "a")
    await found.open()
    cluster.there.clear()
    async with asyncio.timeout(20):
        while not cluster.there:
            await asyncio.sleep(0.001)
    await found.close()
