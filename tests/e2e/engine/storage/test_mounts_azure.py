"""Containers of Azure in real sandboxes, on Azurite; left out of the short run, as Azurite is Node."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from e2e.engine.storage.test_mounts import AT, BOX, clients_of, code, sh, unmount
from e2e.hosts import Host
from integration import azurite
from integration.azurite import CONTAINER, Server
from integration.server.engines import EngineProcess, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def server() -> Iterator[Server]:
    with azurite.serving() as found:
        yield found


@pytest.fixture
def engine(host: Host, server: Server) -> EngineProcess:
    return started(host, server)


@pytest.fixture
def client(engine: EngineProcess) -> Iterator[httpx2.Client]:
    with engine.client() as found:
        yield found
        if engine.process.poll() is None:
            found.delete(BOX)


def started(host: Host, server: Server) -> EngineProcess:
    return host.start(
        ATOLL_STORAGE_BUCKET_ENDPOINTS=server.endpoint, ATOLL_LIFECYCLE_REAP_INTERVAL="0.5"
    )


def mount(
    client: httpx2.Client, server: Server, path: str = AT, url: str = BOX, **fields: Any
) -> httpx2.Response:
    body = {"bucket": CONTAINER, "path": path, "endpoint": server.endpoint, "provider": "azure",
            "credentials": server.credentials, **fields}  # fmt: skip
    return client.post(url + "/mounts", json=body)


def read(server: Server, name: str) -> bytes:
    """What is in a blob; nothing when there is none."""
    try:
        return server.get(name)
    except OSError:
        return b""


def test_files_are_blobs_both_ways(client: httpx2.Client, server: Server) -> None:
    server.put("from/outside.txt", b"hello")
    answer = mount(client, server)
    assert answer.is_success, answer.text
    assert answer.json()["provider"] == "azure"
    assert sh(client, f"cat {AT}/from/outside.txt") == "hello"
    sh(
        client,
        f"cd {AT}; echo one > f; echo two >> f; mkdir d; mv f d/g; head -c 9000000 /dev/zero > big",
    )
    eventually(lambda: read(server, "d/g") == b"one\ntwo\n", 20)
    eventually(lambda: len(read(server, "big")) == 9_000_000, 20)
    assert sh(client, f"stat -c %U:%a {AT}/d/g; ls {AT}") == "root:644\nbig\nd\nfrom"
    assert unmount(client).is_success
    assert sh(client, f"ls -A {AT}") == ""


def test_what_is_wrong_is_told_in_the_words_of_the_server(
    host: Host, client: httpx2.Client, server: Server
) -> None:
    other = {**server.credentials, "secretAccessKey": "b3RoZXI="}
    for fields, expected, reason in (
        ({"credentials": other}, "BUCKET_MOUNT_ERROR", "AuthorizationFailure"),
        ({"bucket": "no-such-container"}, "BUCKET_MOUNT_ERROR", "ContainerNotFound"),
        ({"credentials": None}, "MISSING_CREDENTIALS", None),
        ({"s3fsOptions": ["use_sse=1"]}, "NOT_SUPPORTED_BY_RUNTIME", None),
        ({"s3fsOptions": ["config=/etc/x"]}, "INVALID_MOUNT_CONFIG", None),
    ):
        answer = mount(client, server, **fields)
        assert code(answer) == expected, answer.text
        assert reason is None or answer.json()["context"]["reason"] == reason, answer.text
    assert client.get(BOX + "/mounts").json()["mounts"] == []
    assert clients_of(host) == []


def test_a_prefix_and_read_only_are_all_that_is_seen(client: httpx2.Client, server: Server) -> None:
    """Probes 15 and 17."""
    server.make("other-container")
    for name in ("a/b/in", "a/out", "top"):
        server.put(name, name.encode())
    assert mount(client, server, prefix="a/b", readOnly=True).is_success
    assert sh(client, f"find {AT} -type f; cat {AT}/in") == f"{AT}/in\na/b/in"
    escapes = (f"{AT}/../out", f"{AT}/..%2fout", f"{AT}/%2e%2e/out", f"{AT}/../../{CONTAINER}/top")
    assert "a/out" not in sh(client, "cat " + " ".join(f"'{path}'" for path in escapes))
    assert "Read-only" in sh(client, f"echo x > {AT}/in; rm {AT}/in; echo x > '{AT}/..%2fnew'")
    assert read(server, "a/b/in") == b"a/b/in"


def test_it_survives_sleep_and_the_death_of_its_client_and_of_the_engine(
    host: Host, engine: EngineProcess, client: httpx2.Client, server: Server
) -> None:
    assert mount(client, server).is_success
    sh(client, f"echo 1 > {AT}/f")
    eventually(lambda: read(server, "f") == b"1\n", 20)
    assert client.post(BOX + "/stop").is_success
    assert clients_of(host) == []
    assert sh(client, f"cat {AT}/f") == "1"
    (folder,) = clients_of(host)
    os.killpg(json.loads((folder / "process").read_bytes())["pid"], signal.SIGKILL)
    eventually(lambda: sh(client, f"cat {AT}/f") == "1", 40)
    engine.end(signal.SIGKILL)
    with started(host, server).client() as again:
        assert again.get(BOX + "/mounts").json()["mounts"][0]["active"]
        assert sh(again, f"cat {AT}/f") == "1"
        assert again.delete(BOX).is_success
        assert clients_of(host) == []
        assert not list((host.state_dir / "layers").glob("[!.]*"))


def test_a_mount_in_use_is_not_taken_away_and_nothing_is_lost(
    client: httpx2.Client, server: Server
) -> None:
    assert mount(client, server).is_success
    writer = f"exec 3>{AT}/open; echo kept >&3; while [ ! -e /tmp/end ]; do sleep 0.05; done"
    client.post(BOX + "/processes", json={"command": writer, "processId": "writer"})
    eventually(lambda: "open" in sh(client, f"ls {AT}"), 20)
    assert code(unmount(client)) == "BUCKET_UNMOUNT_ERROR"
    sh(client, f"touch /tmp/end; head -c 20000000 /dev/zero > {AT}/last")
    eventually(lambda: unmount(client).is_success, 20)
    assert read(server, "open") == b"kept\n"
    assert len(read(server, "last")) == 20_000_000


def test_what_is_not_sent_yet_takes_no_more_than_the_disk_of_the_sandbox(
    client: httpx2.Client, server: Server
) -> None:
    """A sandbox cannot fill the host by way of its client's cache."""
    client.put(BOX, json={"instanceType": {"vcpu": 0.5, "memoryMib": 256, "diskMb": 100}})
    answer = mount(client, server)
    assert answer.is_success, answer.text
    told = sh(client, f"head -c 300000000 /dev/zero > {AT}/big; echo; echo small > {AT}/small")
    assert "No space" in told or "error" in told or "quota" in told.lower(), told
    assert sh(client, "echo alive") == "alive"


def test_a_dead_endpoint_gives_errors_in_time_to_who_uses_it(
    client: httpx2.Client, server: Server
) -> None:
    server.put("f", b"x")
    assert mount(client, server, s3fsOptions=["stat_cache_expire=0"]).is_success
    os.kill(server.pid, signal.SIGSTOP)
    try:
        reader = f"if timeout 120 ls {AT}/; then echo 0; else echo $?; fi > /tmp/done 2>&1"
        client.post(BOX + "/processes", json={"command": reader, "processId": "reader"})
        began = time.monotonic()
        while not sh(client, "cat /tmp/done 2>/dev/null | tail -1"):
            asked = time.monotonic()
            assert sh(client, "echo alive") == "alive"
            assert time.monotonic() - asked < 10
            assert time.monotonic() - began < 110
            time.sleep(0.5)
        assert sh(client, "tail -1 /tmp/done") not in {"0", "124"}
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_the_key_is_nowhere_inside_nor_in_any_argv(
    host: Host, engine: EngineProcess, client: httpx2.Client, server: Server
) -> None:
    """Probe 16: of the signature that the client has, too."""
    assert mount(client, server).is_success
    sh(client, f"echo x > {AT}/f")
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    for secret in (azurite.KEY, "sig="):
        assert not [
            line for line in listed.stdout.splitlines() if secret in line and "rclone" in line
        ]
        assert secret not in engine.log
        for path in (host.state_dir / "run").rglob("*"):
            if path.is_file():
                assert secret.encode() not in path.read_bytes(), path
    look = "env; cat /proc/*/environ /proc/*/cmdline /proc/mounts 2>/dev/null | tr '\\0' '\\n'"
    assert azurite.KEY not in sh(client, look)
