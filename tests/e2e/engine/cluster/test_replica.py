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
from atoll.engine.lifecycle.timers import NOTE_ACTIVITY
from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import Api, ApiError
from atoll.wire.process import Stdout
from conformance import servers
from conformance.test_websockets import ECHO
from e2e.engine.cluster import fleet as fleets
from e2e.engine.cluster import outages
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


async def test_a_rollout_of_the_engine_costs_no_line_of_a_stream(fleet: Fleet, id: str) -> None:
    """As a Deployment does it: a new replica is there before an old one is told to go."""
    old = list(fleet.replicas)
    async with atoll.connect(fleet.url) as client:
        box = atoll.get_sandbox(client.Sandbox, id)
        seen, rolled = "", 0
        async for event in box.exec_stream("for n in $(seq 80); do echo line $n; sleep 0.2; done"):
            if isinstance(event, Stdout):
                seen += event.text
                if rolled < len(old) and seen.count("\n") >= 5 * (rolled + 1):
                    fleet.preferred = await fleet.add()
                    await fleet.drop(old[rolled])
                    rolled += 1
        assert seen.splitlines() == [f"line {n}" for n in range(1, 81)]
        assert (await box.info()).generation == 1


async def test_what_is_evicted_is_started_again_with_its_files(
    fleet: Fleet, cluster: Api, id: str
) -> None:
    first, second = fleet.replicas
    await fleets.call(
        first, "POST", execute(id), command="echo kept > /workspace/file; echo > /tmp/x"
    )
    name = (await fleets.call(first, "GET", box(id)))["placementId"]
    await evict(cluster, name)
    async with asyncio.timeout(60):
        while (await fleets.call(second, "GET", box(id)))["state"] != "stopped":
            await asyncio.sleep(0.2)
    command = "cat /workspace/file; ls /tmp/x"
    answer = await fleets.call(second, "POST", execute(id), command=command)
    assert (answer["stdout"], answer["exitCode"] != 0) == ("kept\n", True)
    assert (await fleets.call(first, "GET", box(id)))["generation"] == 2


@pytest.mark.skipif(not outages.KIT, reason="drains a node: needs a kit's cluster")
async def test_what_is_drained_goes_on_at_another_node_with_its_files(
    fleet: Fleet, cluster: Api, id: str
) -> None:
    """The real command, and the next call does not wait for anything: another replica serves it."""
    first, second = fleet.replicas
    await fleets.call(first, "POST", f"{box(id)}/sessions", id="s")
    command = "cd /workspace && export A=kept && echo data > file && echo > /tmp/x"
    await fleets.call(first, "POST", execute(id), command=command, session="s")
    exposed = await fleets.call(first, "POST", f"{box(id)}/ports", port=8080)
    left = await node_of(fleet, cluster, id)
    await asyncio.sleep(2 * NOTE_ACTIVITY)  # sessions are kept that often
    async with outages.drained(left):
        command = "cat /workspace/file; ls /tmp/x"
        answer = await fleets.call(second, "POST", execute(id), command=command)
        assert (answer["stdout"], answer["exitCode"] != 0) == ("data\n", True)
        assert await node_of(fleet, cluster, id) != left
    for replica in (first, second):
        assert (await fleets.call(replica, "GET", box(id)))["generation"] == 2
    told = {"command": "echo $A; pwd", "session": "s"}
    answer = await fleets.call(first, "POST", execute(id), **told)
    assert answer["stdout"] == "kept\n/workspace\n"
    again = await fleets.call(first, "POST", f"{box(id)}/ports", port=8080)
    assert again["url"] == exposed["url"]


async def node_of(fleet: Fleet, cluster: Api, id: str) -> str:
    name = (await fleets.call(fleet.replicas[0], "GET", box(id)))["placementId"]
    pod = await cluster.get(api.path(clusters.settings().namespace, "pods", name))
    assert pod
    return str(pod["spec"]["nodeName"])


async def evict(cluster: Api, pod: str) -> None:
    where = api.path(clusters.settings().namespace, "pods", pod)
    for version in ("v1", "v1beta1"):  # as old and new clusters call it
        body = {"apiVersion": f"policy/{version}", "kind": "Eviction", "metadata": {"name": pod}}
        with suppress(ApiError):
            await cluster.call("POST", f"{where}/eviction", body=body)
            return
    raise AssertionError("not evicted")


async def test_websockets_and_terminals_go_by_any_replica(fleet: Fleet, id: str) -> None:
    first, second = fleet.replicas
    async with atoll.connect(first.hello["url"]) as one, atoll.connect(second.hello["url"]) as two:
        box = atoll.get_sandbox(one.Sandbox, id)
        await servers.install(box, "websockets")
        await servers.python(box, ECHO, 8080)
        there = atoll.get_sandbox(two.Sandbox, id)
        async with await there.ws_connect("/a", 8080) as socket:
            assert await socket.receive() == "localhost:8080 /a"
            await socket.send("by the second")
            assert await socket.receive() == "by the second"
            await fleet.kill(first)
            await socket.send("the first is gone")
            assert await socket.receive() == "the first is gone"
        command = ["sh", "-c", "tty > /dev/null && stty size; read x; stty size"]
        async with await there.spawn(command, pty=True, cols=100, rows=30) as process:
            assert process.stdin is not None
            lines = process.stdout.lines()
            assert (await anext(lines)).strip() == "30 100"
            await process.resize(120, 40)
            await process.stdin.write("\n")
            assert "40 120" in [line.strip() async for line in lines]


@pytest.fixture
async def limited(cluster: Api) -> AsyncIterator[str]:
    """A namespace of the cluster with room for one Pod."""
    name = f"atoll-quota-{secrets.token_hex(3)}"
    await cluster.create("/api/v1/namespaces", named("Namespace", name))
    try:
        quotas = api.path(name, "resourcequotas")
        wanted = {**named("ResourceQuota", "one"), "spec": {"hard": {"pods": "1"}}}
        await cluster.create(quotas, wanted)
        async with asyncio.timeout(60):
            while not ((await cluster.get(f"{quotas}/one")) or {}).get("status", {}).get("hard"):
                await asyncio.sleep(0.2)
        yield name
    finally:
        await cluster.delete(f"/api/v1/namespaces/{name}")


def named(kind: str, name: str) -> api.Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


@pytest.mark.skipif(not outages.KIT, reason="makes a namespace: needs a kit's cluster")
async def test_what_a_quota_refuses_is_lack_of_room_and_leaves_nothing(
    tmp_path: Path, limited: str, cluster: Api
) -> None:
    async with fleets.opened(tmp_path, ATOLL_CLUSTER_NAMESPACE=limited) as fleet:
        first, second = fleet.replicas
        await fleets.call(first, "POST", execute("one"), command=["true"])
        async with httpx2.AsyncClient(timeout=60) as client:
            url = f"{second.hello['url']}{execute('two')}"
            refused = await client.post(url, json={"command": ["true"]})
        told = refused.json()
        assert (told["code"], told["context"]["reason"]) == ("CONTAINER_UNAVAILABLE", "capacity")
        await fleets.call(first, "DELETE", box("one"))
        async with asyncio.timeout(60):
            while (await cluster.call("GET", api.path(limited, "pods")))["items"]:
                await asyncio.sleep(0.5)
        await fleets.call(second, "POST", execute("two"), command=["true"])
        await fleets.call(second, "DELETE", box("two"))
