"""At most one copy of a sandbox with a lease lives, whatever breaks: seeded schedules of outages.

Each copy of a sandbox writes the time into a file of its own, ten times a second, onto the volume that
all copies of it share. When everything has healed, no two of these files overlap.
"""

import asyncio
import itertools
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

import clusters
from atoll.engine.cluster.renewals import MARGIN
from atoll.runtime.kubernetes import api
from e2e.engine.cluster import fleet, outages
from e2e.engine.cluster.outages import Site
from integration.server.engines import EngineProcess

pytestmark = [
    clusters.needed,
    pytest.mark.skipif(not outages.KIT, reason="needs a kit's cluster"),
    pytest.mark.timeout(400),
]

SCHEDULES = int(os.environ.get("ATOLL_OUTAGES", "3"))
FIRST = int(os.environ.get("ATOLL_OUTAGES_FIRST", "0"))
BOXES = 4
LEASE = 15
FAILOVER = LEASE + 5.0
"""Seconds from the cut of a node until another copy works, where nothing else is broken meanwhile."""

LOOKS = 1.5
"""Seconds between the end of a lease and what is begun then: when it is looked at, the cluster's API."""

BEAT = (
    "mkdir /tmp/beating 2>/dev/null || exit 0; "
    "file=/workspace/beats-$(cat /proc/sys/kernel/random/uuid); "
    "(while :; do date +%s.%N >> $file; sleep 0.1; done) < /dev/null > /dev/null 2>&1 &"
)
READ = "for file in /workspace/beats-*; do head -n 1 $file; tail -n 1 $file; done"

Copies = list[tuple[float, float]]
Fault = Callable[[random.Random, list[Site]], AbstractAsyncContextManager[Any]]


class _SiteCut:
    def __init__(self, site: Site, **lost: Any) -> None:
        self._site, self._lost = site, lost

    async def __aenter__(self) -> None:
        await self._site.cut_from(**self._lost)

    async def __aexit__(self, *_: object) -> None:
        await self._site.heal()


def _split(_: random.Random, sites: list[Site]) -> AbstractAsyncContextManager[Any]:
    """One replica has the API and no node; the other one, see `_other_side`, the nodes and no API."""
    return _SiteCut(sites[0], nodes=outages.NODES)


FAULTS: dict[str, Fault] = {
    "a node is cut off": lambda rng, _: outages.node_cut(rng.choice(outages.NODES)),
    "a replica is cut off from everything": lambda rng, sites: _SiteCut(
        rng.choice(sites), api=True, nodes=outages.NODES
    ),
    "a replica is cut off from the API": lambda rng, sites: _SiteCut(rng.choice(sites), api=True),
    "a replica is cut off from two nodes": lambda rng, sites: _SiteCut(
        rng.choice(sites), nodes=rng.sample(outages.NODES, 2)
    ),
    "a kubelet is killed": lambda rng, _: outages.kubelet_killed(rng.choice(outages.NODES)),
    "the API's server is stopped": lambda _, __: outages.api_stopped(),
    "one replica has only the API": _split,
    "the other one has only the nodes": lambda _, sites: _SiteCut(sites[1], api=True),
}
SPLIT = ("one replica has only the API", "the other one has only the nodes")
KINDS = (
    ("a node is cut off",),
    SPLIT,
    ("the API's server is stopped",),
    ("a replica is cut off from everything",),
    ("a kubelet is killed",),
    ("a replica is cut off from two nodes",),
    ("a replica is cut off from the API",),
)
"""Seeds take them in turn; every other one has one more."""


def schedule(seed: int) -> list[tuple[str, float, float]]:
    """Return faults with the seconds at which they begin and how long they last."""
    rng = random.Random(seed)
    names = list(KINDS[seed % len(KINDS)])
    if rng.random() < 0.5:
        names += rng.sample(sorted(set(FAULTS) - set(names)), 1)
    chosen = []
    for number, name in enumerate(names):
        begin = 0.0 if number == 0 or name in SPLIT else rng.uniform(0, 10)
        chosen.append((name, begin, rng.uniform(20, 35)))
    return chosen


async def call(engine: EngineProcess, id: str, command: str) -> dict[str, Any]:
    transport = httpx2.AsyncHTTPTransport(uds=engine.hello["socket"])
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        url = f"http://engine/v2/namespaces/Sandbox/sandboxes/{id}/exec"
        answer = await client.post(url, json={"command": ["bash", "-c", command]})
    answer.raise_for_status()
    return dict(answer.json())


async def use(engines: list[EngineProcess], ids: list[str], rng: random.Random) -> None:
    """Call all of them by both replicas, again and again; each new copy begins to write."""

    async def one(engine: EngineProcess, id: str) -> None:
        while True:
            with suppress(httpx2.HTTPError):
                await call(engine, id, BEAT)
            await asyncio.sleep(rng.uniform(0.5, 1.5))

    await asyncio.gather(*(one(engine, id) for engine in engines for id in ids))


async def answered(engine: EngineProcess, id: str, command: str, seconds: float = 150) -> str:
    async with asyncio.timeout(seconds):
        while True:
            with suppress(httpx2.HTTPError):
                found = await call(engine, id, command)
                if found["exitCode"] == 0:
                    return str(found["stdout"])
            await asyncio.sleep(0.5)


def overlaps(copies: Copies) -> list[float]:
    """Return the seconds between the end of each copy and the begin of the next; negative: overlap."""
    ordered = sorted(copies)
    return [after[0] - before[1] for before, after in itertools.pairwise(ordered)]


def failovers(copies: Copies, at: float) -> list[float]:
    """Return the seconds from *at* to the begin of the copy that took over from the one of then."""
    ordered = sorted(copies)
    pairs = itertools.pairwise(ordered)
    return [after[0] - at for before, after in pairs if before[0] < at <= after[0]]


async def within(
    fault: str, begin: float, seconds: float, rng: random.Random, sites: list[Site]
) -> float:
    """Break something for a while; return when it was broken."""
    await asyncio.sleep(begin)
    async with FAULTS[fault](rng, sites):
        broken = time.time()
        await asyncio.sleep(seconds)
    return broken


def test_schedules_have_each_kind_of_fault_and_are_the_same_each_time() -> None:
    seeds = range(len(KINDS))
    assert {name for seed in seeds for name, *_ in schedule(seed)} == set(FAULTS)
    assert [schedule(seed) for seed in seeds] == [schedule(seed) for seed in seeds]


def test_the_time_of_a_failover_counts_from_the_fault_and_for_whom_it_met_only() -> None:
    assert failovers([(30.0, 40.0), (0.0, 25.0)], 12.0) == [18.0]
    assert failovers([(0.0, 40.0)], 12.0) == []
    assert failovers([(0.0, 5.0), (6.0, 40.0)], 12.0) == []


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SCHEDULES))
async def test_no_two_copies_live_at_once(seed: int, tmp_path: Path) -> None:
    faults, rng = schedule(seed), random.Random(seed)
    settings = clusters.environment() | {
        "ATOLL_CLUSTER_REPLICAS": "true",
        "ATOLL_CLUSTER_FAILOVER": "lease",
        "ATOLL_CLUSTER_LEASE": str(LEASE),
    }
    await fleet.define()
    ids = [f"box-{secrets.token_hex(3)}" for _ in range(BOXES)]
    async with outages.replicas(tmp_path, **settings) as made:
        sites, engines = [site for site, _ in made], [engine for _, engine in made]
        before = time.time()
        await asyncio.gather(*(answered(engines[0], id, BEAT) for id in ids))
        start = time.time() - before
        using = asyncio.create_task(use(engines, ids, rng))
        began = time.time()
        broken = await asyncio.gather(*(within(*fault, rng, sites) for fault in faults))
        found = await _beats(engines, ids)
        using.cancel()
        await asyncio.wait([using])
        await asyncio.gather(*(_destroyed(engines[0], id) for id in ids))
        logs = "\n".join(engine.log for engine in engines)
    gaps = [gap for copies in found for gap in overlaps(copies)]
    took = sorted(gap for copies in found for gap in failovers(copies, broken[0]))
    told = {"seed": seed, "faults": faults, "gaps": [round(gap, 1) for gap in sorted(gaps)],
            "failovers": [round(gap, 1) for gap in took], "start": round(start, 1),
            "took": round(time.time() - began)}  # fmt: skip
    print(told)
    assert min(gaps, default=1.0) > 0, (told, logs)
    if [name for name, *_ in faults] == ["a node is cut off"]:
        slow = (
            LEASE * MARGIN + LOOKS + start
        )  # where starts take long, as on a machine of many tests
        assert max(took, default=0.0) <= max(FAILOVER, slow), (told, logs)


async def _beats(engines: list[EngineProcess], ids: list[str]) -> list[Copies]:
    async def of(id: str) -> Copies:
        for engine in engines:
            await answered(engine, id, BEAT)
        await asyncio.sleep(3)  # what is wrongly alive writes on
        times = [float(word) for word in (await answered(engines[0], id, READ)).split()]
        return list(zip(times[::2], times[1::2], strict=True))

    work: list[Awaitable[Copies]] = [of(id) for id in ids]
    return list(await asyncio.gather(*work))


async def _destroyed(engine: EngineProcess, id: str) -> None:
    transport = httpx2.AsyncHTTPTransport(uds=engine.hello["socket"])
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        with suppress(httpx2.HTTPError):  # what is left is removed by the next engine
            await client.delete(f"http://engine/v2/namespaces/Sandbox/sandboxes/{id}")


async def test_without_leases_nothing_is_replaced_and_nothing_ends_by_itself(
    tmp_path: Path,
) -> None:
    settings = clusters.environment() | {"ATOLL_CLUSTER_REPLICAS": "true"}
    await fleet.define()
    id = f"box-{secrets.token_hex(3)}"
    async with outages.replicas(tmp_path, **settings) as made:
        engines = [engine for _, engine in made]
        await answered(engines[0], id, "touch /tmp/mine")
        async with outages.node_cut(await _node_of(engines[0], id)):
            await asyncio.sleep(LEASE * 1.5)
            for engine in engines:
                with pytest.raises(httpx2.HTTPStatusError):
                    await call(engine, id, "true")
        for engine in engines:
            await answered(engine, id, "ls /tmp/mine")
        await _destroyed(engines[0], id)


async def _node_of(engine: EngineProcess, id: str) -> int:
    transport = httpx2.AsyncHTTPTransport(uds=engine.hello["socket"])
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        told = await client.get(f"http://engine/v2/namespaces/Sandbox/sandboxes/{id}")
    where = api.path(clusters.settings().namespace, "pods", told.json()["placementId"])
    async with clusters.connected() as cluster:
        pod = await cluster.get(where)
    assert pod
    return int(pod["spec"]["nodeName"].removeprefix("n"))
