"""The engine with real containers: exactly one start, crashes at any moment, nothing left behind."""

import os
import random
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e.hosts import SANDBOXES, Host, run
from integration.server.engines import eventually

pytestmark = pytest.mark.e2e

BOX = SANDBOXES + "/box"
SLOW = {"command": ["sh", "-c", "for i in $(seq 30); do echo $i; sleep 0.1; done"]}


@pytest.fixture
def host() -> Iterator[Host]:
    if os.geteuid():
        pytest.skip("needs root")
    found = Host()
    yield found
    found.close()


def test_fifty_first_calls_make_exactly_one_container(host: Host) -> None:
    engine = host.start()
    with engine.client() as client, ThreadPoolExecutor(50) as pool:
        calls = [pool.submit(run, client, BOX, "cat", "/etc/machine-id") for _ in range(50)]
        machines = {call.result()["stdout"] for call in calls}
        assert len(machines) == 1
        assert client.get(BOX).json()["generation"] == 1
        kinds = " ".join(host.left(engine.hello["engineId"]))
        assert all(kind in kinds for kind in ("rootfs", "/sys/fs/cgroup/", "/run/", "alias"))
        assert len(host.layers()) == 1
        client.delete(BOX)
    assert host.layers() == []
    assert host.left(engine.hello["engineId"]) == []


def test_a_command_in_a_container_outlives_the_engine(host: Host) -> None:
    first = host.start()
    seen = bytearray()

    def read() -> None:
        headers = {"idempotency-key": "k1", "accept": "application/x-ndjson"}
        with (
            first.client() as client,
            suppress(httpx2.TransportError),
            client.stream("POST", BOX + "/exec", json=SLOW, headers=headers) as answer,
        ):
            for chunk in answer.iter_raw():
                seen.extend(chunk)

    reading = threading.Thread(target=read)
    reading.start()
    eventually(lambda: b"Mwo=" in seen, 20)  # base64 of the third line
    first.end(signal.SIGKILL)
    reading.join()
    with host.start().client() as client:
        body = client.get(BOX + "/operations/k1").json()
    assert body["stdout"] == "".join(f"{n}\n" for n in range(1, 31))
    assert body["exitCode"] == 0


def test_files_survive_stop_wake_and_a_killed_engine(host: Host) -> None:
    first = host.start()
    with first.client() as client:
        run(client, BOX, "sh", "-c", "echo one > /workspace/f; echo two > /root/g")
        assert client.post(BOX + "/stop").json()["state"] == "stopped"
    assert host.left(first.hello["engineId"]) == []
    first.end(signal.SIGKILL)
    with host.start().client() as client:
        found = run(client, BOX, "sh", "-c", "cat /workspace/f /root/g; hostname")
        assert found["stdout"] == "one\ntwo\nbox\n"
        client.delete(BOX)
        assert run(client, BOX, "ls", "/workspace")["stdout"] == ""


def test_an_engine_killed_at_any_moment_of_creates_and_destroys_leaves_nothing(host: Host) -> None:
    """The steps of a start one by one: `integration/engine/lifecycle/test_sequence.py`."""
    chance = random.Random(7)
    for _ in range(4):
        engine = host.start()
        with engine.client() as client, ThreadPoolExecutor(6) as pool:
            for n in range(4):
                pool.submit(_quietly, run, client, f"{SANDBOXES}/c{n}", "true")
                pool.submit(_quietly, client.delete, f"{SANDBOXES}/c{n}")
            time.sleep(chance.uniform(0.02, 0.6))
            engine.end(signal.SIGKILL)
    engine = host.start()
    with engine.client() as client:
        for info in client.get(SANDBOXES).json()["sandboxes"]:
            assert info["state"] in {"created", "running", "stopped"}
            client.delete(f"{SANDBOXES}/{info['id']}")
    assert host.left(engine.hello["engineId"]) == []
    assert host.layers() == []


def _quietly(call: Any, *arguments: Any) -> None:
    with suppress(httpx2.TransportError, AssertionError):
        call(*arguments)


def test_an_engine_that_ends_with_nothing_running_leaves_no_mount(host: Host) -> None:
    """With a sandbox running the disk stays mounted under it, until an engine ends without one."""
    first = host.start()
    with first.client() as client:
        run(client, BOX, "true")
    assert first.end() == 0
    assert os.path.ismount(host.state_dir / "layers")
    reader = host.start("--local")
    _lease(host.state_dir, lambda: None)
    assert reader.wait() == 0
    assert os.path.ismount(host.state_dir / "layers")
    user = host.start("--local")
    with user.client() as client:
        _lease(host.state_dir, lambda: run(client, BOX, "true"))
    assert user.wait() == 0
    assert not os.path.ismount(host.state_dir / "layers")
    last = host.start()
    with last.client() as client:
        assert client.get(BOX).json()["state"] == "stopped"
    assert last.end() == 0
    assert not os.path.ismount(host.state_dir / "layers")


def _lease(state_dir: Path, work: Callable[[], object]) -> None:
    with socket.socket(socket.AF_UNIX) as lease:
        lease.connect(str(state_dir / "lease.sock"))
        lease.recv(1 << 12)
        work()


def test_what_cannot_start_says_why_and_leaves_nothing(host: Host) -> None:
    engine = host.start()
    with engine.client() as client:
        for options, status, code in (
            ({"image": "atoll/none"}, 404, "IMAGE_NOT_FOUND"),
            ({"image": "UPPER//bad"}, 400, "INVALID_IMAGE"),
            ({"image": "/root"}, 400, "INVALID_IMAGE"),
            ({"runtime": "bwrap"}, 501, "RUNTIME_NOT_AVAILABLE"),
            ({"runtime": "fake"}, 501, "RUNTIME_NOT_AVAILABLE"),
        ):
            answer = client.put(BOX, json=options)
            if answer.is_success:  # well-formed: only the start can tell
                answer = client.post(BOX + "/start")
            assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
            client.delete(BOX)
    assert host.left(engine.hello["engineId"]) == []


def test_limits_of_the_instance_type_are_in_force(host: Host) -> None:
    engine = host.start()
    with engine.client() as client:
        size = {"vcpu": 0.5, "memoryMib": 64, "diskMb": 60}
        client.put(BOX, json={"instanceType": size})
        hog = run(client, BOX, "python3", "-c", "x = bytearray(10**9)")
        assert hog["oomKilled"] is True
        full = run(client, BOX, "sh", "-c", "head -c 200000000 /dev/zero > /workspace/big")
        assert full["exitCode"] != 0
        assert run(client, BOX, "true")["exitCode"] == 0
        assert client.get(BOX).json()["limits"]["memory"] == 64 << 20


def test_a_session_survives_a_container_that_is_killed(host: Host) -> None:
    """Nothing is exported then: what was kept while it ran is used."""
    engine = host.start()
    with engine.client() as client:
        client.post(BOX + "/exec", json={"command": "export KEPT=1; cd /tmp"})
        eventually(lambda: kept_sessions(host), 20)
        (pid_file,) = (host.state_dir / "run").glob("*/container/pid")
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        eventually(lambda: client.post(BOX + "/exec", json={"command": ":"}).is_success, 10)
        told = client.post(BOX + "/exec", json={"command": "echo $KEPT $PWD"}).json()
        assert told["stdout"] == "1 /tmp\n"


def kept_sessions(host: Host) -> bool:
    with closing(sqlite3.connect(host.state_dir / "atoll.db")) as store:
        return bool(store.execute("SELECT 1 FROM sessions").fetchone())


def test_a_sandbox_keeps_its_machine_id_and_the_next_of_its_name_has_another(host: Host) -> None:
    engine = host.start()
    with engine.client() as client:
        first = run(client, BOX, "cat", "/etc/machine-id")["stdout"]
        client.post(BOX + "/stop")
        assert run(client, BOX, "cat", "/etc/machine-id")["stdout"] == first
        client.delete(BOX)
        assert run(client, BOX, "cat", "/etc/machine-id")["stdout"] != first
