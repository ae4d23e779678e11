"""Several engines of one namespace, on a real cluster."""

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

import atoll
import clusters
from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import Api
from atoll.wire.process import Stdout
from e2e.engine.cluster import fleet as fleets
from e2e.engine.cluster.fleet import Fleet

pytestmark = [clusters.needed, pytest.mark.timeout(300)]


@pytest.fixture
async def cluster() -> AsyncIterator[Api]:
    async with clusters.connected() as found:
        yield found


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with fleets.opened(tmp_path) as found:
        yield found


@pytest.fixture
async def id(fleet: Fleet) -> AsyncIterator[str]:
    name = f"box-{secrets.token_hex(4)}"
    yield name
    with suppress(AssertionError):
        await fleets.call(fleet.replicas[0], "DELETE", f"/v2/namespaces/Sandbox/sandboxes/{name}")


async def pods_of(cluster: Api) -> list[str]:
    where = api.path(clusters.settings().namespace, "pods")
    return [one["metadata"]["name"] for one in (await cluster.call("GET", where))["items"]]


def box(id: str) -> str:
    return f"/v2/namespaces/Sandbox/sandboxes/{id}"


def execute(id: str) -> str:
    return f"{box(id)}/exec"


async def test_fifty_first_calls_by_two_engines_make_one_pod(
    fleet: Fleet, cluster: Api, id: str
) -> None:
    before = await pods_of(cluster)
    command = ["sh", "-c", "echo $$ >> /workspace/calls; hostname"]
    calls = [
        fleets.call(fleet.replicas[n % 2], "POST", execute(id), command=command) for n in range(50)
    ]
    answers = await asyncio.gather(*calls)
    assert {answer["exitCode"] for answer in answers} == {0}
    assert len(set(await pods_of(cluster)) - set(before)) == 1
    counted = await fleets.call(
        fleet.replicas[0], "POST", execute(id), command=["wc", "-l", "/workspace/calls"]
    )
    assert counted["stdout"].split()[0] == "50"


async def test_a_replica_that_is_killed_costs_its_connections_and_streams_go_on(
    fleet: Fleet, id: str
) -> None:
    """Neither a line is lost nor one repeated: the other replica resumes by offset."""
    victim = fleet.preferred = fleet.replicas[0]
    async with atoll.connect(fleet.url) as client:
        box = atoll.get_sandbox(client.Sandbox, id)
        seen, killed = "", False
        async for event in box.exec_stream("for n in $(seq 60); do echo line $n; sleep 0.1; done"):
            if isinstance(event, Stdout):
                seen += event.text
                if not killed and seen.count("\n") >= 5:
                    await fleet.kill(victim)
                    killed = True
        assert seen.splitlines() == [f"line {n}" for n in range(1, 61)]
        assert (await box.exec("echo again")).stdout == "again\n"


async def test_files_and_sessions_follow_from_replica_to_replica_without_a_disk_of_theirs(
    fleet: Fleet, id: str
) -> None:
    """The one that wakes it never saw it before, and the one that had it is gone with its disk."""
    first, second = fleet.replicas
    wanted = {"command": "cd /workspace && export A=kept && echo data > file", "session": "s"}
    await fleets.call(first, "POST", f"{box(id)}/sessions", id="s")
    await fleets.call(first, "POST", execute(id), **wanted)
    await fleets.call(first, "POST", f"{box(id)}/stop")
    await fleet.kill(first)
    shutil.rmtree(first.state_dir)
    told = {"command": "echo $A; pwd; cat file", "session": "s"}
    answer = await fleets.call(second, "POST", execute(id), **told)
    assert answer["stdout"] == "kept\n/workspace\ndata\n"
    third = await fleet.add()
    info = await fleets.call(third, "GET", box(id))
    assert (info["state"], info["generation"]) == ("running", 2)


@pytest.mark.parametrize("point", ["start.recorded", "start.container", "start.running"])
async def test_what_a_replica_leaves_that_dies_at_the_worst_moment_is_taken_over(
    fleet: Fleet, cluster: Api, id: str, point: str
) -> None:
    before = await pods_of(cluster)
    victim = await fleet.add(ATOLL_FAULTS_POINT=point)
    with pytest.raises(httpx2.HTTPError):
        await fleets.call(victim, "POST", execute(id), command=["true"])
    await fleet.lost(victim)
    answer = await fleets.call(fleet.replicas[0], "POST", execute(id), command=["echo", "here"])
    assert answer["stdout"] == "here\n"
    async with asyncio.timeout(60):
        while len(set(await pods_of(cluster)) - set(before)) != 1:
            await asyncio.sleep(0.5)


async def test_a_preview_is_served_and_revoked_by_all(fleet: Fleet, id: str) -> None:
    first, second = fleet.replicas
    await fleets.call(
        first, "POST", f"{box(id)}/processes",
        command="python3 -m http.server 8080 --bind 127.0.0.1 --directory /etc",
    )  # fmt: skip
    exposed = await fleets.call(first, "POST", f"{box(id)}/ports", port=8080)
    host = httpx2.URL(exposed["url"]).host

    async def visit() -> int:
        async with httpx2.AsyncClient() as client:
            url = f"{second.hello['url']}/hostname"
            return (await client.get(url, headers={"Host": host})).status_code

    async with asyncio.timeout(30):
        while await visit() != 200:
            await asyncio.sleep(0.1)
    await fleets.call(first, "DELETE", f"{box(id)}/ports/8080")
    async with asyncio.timeout(30):
        while await visit() != 404:
            await asyncio.sleep(0.1)
