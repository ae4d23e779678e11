"""A warm container is the sandbox's own in everything that can be seen inside, from the first call."""

import signal

import httpx2
import pytest

from e2e.hosts import SANDBOXES, Host, run
from integration.server.engines import eventually

pytestmark = pytest.mark.e2e

BOX = SANDBOXES + "/My_Box"
WHO = "hostname; uname -n; cat /etc/hostname /etc/machine-id; grep my-box /etc/hosts; env; id -u"


def warm(client: httpx2.Client) -> int:
    stats = client.get("/v2/pool").json()
    return int(stats["warm"]) if not stats["making"] else -1


def identity(client: httpx2.Client) -> str:
    told = run(client, BOX, "sh", "-c", WHO)
    assert told["exitCode"] == 0, told
    return str(told["stdout"])


def test_identity_is_the_same_as_after_a_start_of_its_own(host: Host) -> None:
    engine = host.start(ATOLL_POOL_TARGET="1")
    with engine.client() as client:
        eventually(lambda: warm(client) == 1, 30)
        client.put(BOX, json={"env": {"MINE": "1"}})
        first = identity(client)
        assert client.get("/v2/pool").json()["taken"] == 1
        assert first.splitlines()[:3] == ["my-box"] * 3
        assert "MINE=1" in first
        client.post(BOX + "/stop")
        again = identity(client)
        # The address is the start's, everything else the sandbox's.
        assert [line for line in again.splitlines() if "\tmy-box" not in line] == [
            line for line in first.splitlines() if "\tmy-box" not in line
        ]
        client.delete(BOX)
        eventually(lambda: warm(client) == 1, 30)
        assert identity(client).splitlines()[3] != first.splitlines()[3]


def test_a_killed_engine_leaves_its_pool_to_the_next_and_a_stopped_one_leaves_none(
    host: Host,
) -> None:
    first = host.start(ATOLL_POOL_TARGET="2")
    with first.client() as client:
        eventually(lambda: warm(client) == 2, 30)
    first.end(signal.SIGKILL)
    second = host.start(ATOLL_POOL_TARGET="2")
    with second.client() as client:
        assert warm(client) == 2
        identity(client)
        assert client.get("/v2/pool").json()["taken"] == 1
        client.delete(BOX)
    assert second.end() == 0
    assert host.left(second.hello["engineId"]) == []
    assert host.layers() == []
