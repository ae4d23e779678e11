"""Freezing with the kernel's freezer: nothing runs, everything goes on."""

import signal
import time

import httpx2
import pytest

from e2e.hosts import SANDBOXES, Host, run
from integration.server.engines import eventually

pytestmark = pytest.mark.e2e

BOX = SANDBOXES + "/box"
COUNT = "i=0; while sleep 0.02; do i=$((i+1)); echo $i >/workspace/i; done"


def count(client: httpx2.Client) -> int:
    return int(run(client, BOX, "cat", "/workspace/i")["stdout"] or 0)


def frozen(client: httpx2.Client) -> None:
    client.put(BOX, json={"sleepMode": "freeze"})
    client.post(BOX + "/processes", json={"command": COUNT, "processId": "counter"})
    eventually(lambda: count(client) > 2, 20)
    assert client.post(BOX + "/sleep").json()["state"] == "frozen"


def test_a_frozen_process_uses_no_time_and_goes_on_where_it_was(host: Host) -> None:
    engine = host.start()
    with engine.client() as client:
        frozen(client)
        before = client.get(BOX + "/metrics").json()
        assert before["pids"] > 0
        time.sleep(0.3)
        assert client.get(BOX + "/metrics").json()["cpuTime"] == before["cpuTime"]
        (process,) = client.get(BOX + "/processes").json()["processes"]
        assert process["status"] == "running"
        assert client.get(BOX).json()["state"] == "frozen"
        seen = count(client)
        info = client.get(BOX).json()
        assert (info["state"], info["generation"]) == ("running", 1)
        eventually(lambda: count(client) > seen, 20)


@pytest.mark.parametrize("end", ["stop", "destroy", "kill process"])
def test_a_frozen_sandbox_can_be_ended(host: Host, end: str) -> None:
    engine = host.start()
    with engine.client() as client:
        frozen(client)
        if end == "kill process":
            told = client.request("DELETE", BOX + "/processes/counter").json()
            assert told["status"] == "killed"
            return
        answer = client.post(BOX + "/stop") if end == "stop" else client.delete(BOX)
        assert answer.is_success, answer.text
    assert host.left(engine.hello["engineId"]) == []


def test_a_frozen_sandbox_is_found_frozen_after_a_crash(host: Host) -> None:
    first = host.start()
    with first.client() as client:
        frozen(client)
    first.end(signal.SIGKILL)
    with host.start().client() as client:
        assert client.get(BOX).json()["state"] == "frozen"
        seen = count(client)
        eventually(lambda: count(client) > seen, 20)
