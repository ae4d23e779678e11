"""Much, large and failing, by each program that serves S3; left out of the short run."""

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from e2e.engine.storage.test_mounts import AT, BOX, clients_of, code, mount, resident, sh, unmount
from e2e.hosts import SANDBOXES, Host
from integration.buckets import BUCKET, Server, serving
from integration.endpoints import Relay, answering
from integration.server.engines import EngineProcess, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

OTHER = SANDBOXES + "/other"
SIZE = 1_000_000_000
MADE = f"openssl enc -aes-128-ctr -nosalt -K 00 -iv 00 </dev/zero 2>/dev/null | head -c {SIZE}"
TIMEOUTS = ["connect_timeout=1", "readwrite_timeout=2", "retries=1", "stat_cache_expire=1"]


@pytest.fixture(params=["s3fs", "rclone"])
def tool(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def bucket(server: Server) -> Any:
    return server.client()


@pytest.fixture
def relay(server: Server) -> Iterator[tuple[Relay, Server]]:
    """The way to the server, which a test may turn into something worse."""
    found = Relay(server.endpoint)
    with answering(found) as url:
        yield found, server._replace(endpoint=url)


def started(host: Host, tool: str, endpoint: str) -> EngineProcess:
    return host.start(ATOLL_STORAGE_BUCKET_ENDPOINTS=endpoint, ATOLL_STORAGE_S3_CLIENT=tool)


@contextmanager
def opened(engine: EngineProcess) -> Iterator[httpx2.Client]:
    """Two sandboxes: a GB that is not sent yet needs its place, and hashing one some of a core."""
    kind = {"vcpu": 1, "memoryMib": 512, "diskMb": 4_000}
    with engine.client() as client:
        client.timeout = 510
        for url in (BOX, OTHER):
            assert client.put(url, json={"instanceType": kind}).is_success
        yield client


def ended(client: httpx2.Client, command: str, url: str = BOX) -> int:
    """Return the exit code of a command that may take minutes."""
    answer = client.post(url + "/exec", json={"command": command, "timeout": 500_000})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["exitCode"])


def test_a_gigabyte_goes_both_ways(host: Host, tool: str, server: Server, bucket: Any) -> None:
    with opened(started(host, tool, server.endpoint)) as client:
        assert mount(client, server).is_success
        assert ended(client, f"{MADE} > {AT}/big; {MADE} | cmp - {AT}/big") == 0
        assert all(resident(folder) < 300 << 20 for folder in clients_of(host))
        assert unmount(client).is_success
        stored, total = hashlib.sha256(), 0
        for piece in bucket.get_object(Bucket=BUCKET, Key="big")["Body"].iter_chunks(1 << 20):
            stored.update(piece)
            total += len(piece)
        assert total == SIZE
        assert mount(client, server, url=OTHER, readOnly=True).is_success
        assert ended(client, f"sha256sum < {AT}/big > /tmp/sum", OTHER) == 0
        assert sh(client, "cat /tmp/sum", OTHER).split()[0] == stored.hexdigest()
        for url in (BOX, OTHER):
            assert client.delete(url).is_success


def test_ten_thousand_objects_and_two_sandboxes(
    host: Host, tool: str, server: Server, bucket: Any
) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = (f"many/{number:05}" for number in range(10_000))
        list(pool.map(lambda key: bucket.put_object(Bucket=BUCKET, Key=key, Body=b"x"), keys))
    with opened(started(host, tool, server.endpoint)) as client:
        for url in (BOX, OTHER):
            options = ["stat_cache_expire=1"]
            assert mount(client, server, url=url, s3fsOptions=options).is_success
        assert sh(client, f"ls {AT}/many | wc -l; find {AT} -type f | wc -l") == "10000\n10000"
        assert all(resident(folder) < 250 << 20 for folder in clients_of(host))
        sh(client, f"echo told > {AT}/note")
        eventually(lambda: sh(client, f"cat {AT}/note", OTHER) == "told", 60)
        for url in (BOX, OTHER):
            assert client.delete(url).is_success


def test_a_mount_in_use_is_not_taken_away_and_nothing_is_lost(
    host: Host, tool: str, server: Server, bucket: Any
) -> None:
    with opened(started(host, tool, server.endpoint)) as client:
        assert mount(client, server).is_success
        writer = f"exec 3>{AT}/open; echo kept >&3; while [ ! -e /tmp/end ]; do sleep 0.05; done"
        client.post(BOX + "/processes", json={"command": writer, "processId": "writer"})
        eventually(lambda: "open" in sh(client, f"ls {AT}"), 40)
        assert code(unmount(client)) == "BUCKET_UNMOUNT_ERROR"
        sh(client, f"touch /tmp/end; head -c 20000000 /dev/zero > {AT}/last")
        eventually(lambda: unmount(client).is_success, 40)
        assert bucket.get_object(Bucket=BUCKET, Key="open")["Body"].read() == b"kept\n"
        assert bucket.head_object(Bucket=BUCKET, Key="last")["ContentLength"] == 20_000_000
        client.delete(BOX)


@pytest.mark.parametrize("failing", ["silent", "gone", "garbage", "page", "noise"])
def test_an_endpoint_that_fails_hangs_nobody(
    host: Host, tool: str, relay: tuple[Relay, Server], bucket: Any, failing: str
) -> None:
    """Who uses the folder gets errors in time; the sandbox, others, and the engine do not notice."""
    way, server = relay
    bucket.put_object(Bucket=BUCKET, Key="f", Body=b"x" * 100_000)
    with opened(started(host, tool, server.endpoint)) as client:
        assert mount(client, server, s3fsOptions=TIMEOUTS).is_success
        assert sh(client, f"wc -c < {AT}/f") == "100000"
        way.become(failing)
        user = f"ls {AT}/; cat {AT}/f; echo new > {AT}/new; echo over > /tmp/over"
        client.post(BOX + "/processes", json={"command": user, "processId": "user"})
        began = time.monotonic()
        while sh(client, "cat /tmp/over 2>/dev/null") != "over":
            asked = time.monotonic()
            assert sh(client, "echo alive") == "alive"
            assert client.get(BOX + "/mounts").is_success
            assert time.monotonic() - asked < 15
            assert time.monotonic() - began < 240
            time.sleep(0.5)
        assert sh(client, "echo alive", OTHER) == "alive"
        began = time.monotonic()
        assert client.delete(BOX).is_success
        assert time.monotonic() - began < 30
    eventually(lambda: clients_of(host) == [], 30)


def test_an_endpoint_that_trickles_holds_only_who_reads_it_and_no_longer_than_they_wait(
    host: Host, tool: str, relay: tuple[Relay, Server], bucket: Any
) -> None:
    """Ten bytes a second are no silence: their reader waits, but no call, and no end of the sandbox."""
    way, server = relay
    bucket.put_object(Bucket=BUCKET, Key="f", Body=b"x" * 100_000)
    with opened(started(host, tool, server.endpoint)) as client:
        assert mount(client, server, s3fsOptions=TIMEOUTS).is_success
        way.become("trickle")
        for command in (f"cat {AT}/f", f"ls {AT}/", f"echo new > {AT}/new"):
            began = time.monotonic()
            body = {"command": command, "timeout": 3_000}
            answer = client.post(BOX + "/exec", json=body)
            assert answer.status_code in {200, 408}, answer.text
            assert sh(client, "echo alive") == "alive"
            assert client.get(BOX + "/mounts").is_success
            assert time.monotonic() - began < 60
        began = time.monotonic()
        assert client.delete(BOX).is_success
        assert time.monotonic() - began < 30
    eventually(lambda: clients_of(host) == [], 30)


def test_a_slow_endpoint_is_slow_and_no_error(
    host: Host, tool: str, relay: tuple[Relay, Server], bucket: Any
) -> None:
    way, server = relay
    way.pause = 0.2
    with opened(started(host, tool, server.endpoint)) as client:
        assert mount(client, server).is_success
        sh(client, f"head -c 3000000 /dev/urandom > /tmp/f; cp /tmp/f {AT}/f")
        assert sh(client, f"cmp /tmp/f {AT}/f && echo same") == "same"
        assert unmount(client).is_success
        assert bucket.head_object(Bucket=BUCKET, Key="f")["ContentLength"] == 3_000_000
        client.delete(BOX)


def test_a_stopped_server_lets_the_sandbox_sleep_and_wake(
    host: Host, tool: str, server: Server
) -> None:
    with opened(started(host, tool, server.endpoint)) as client:
        assert mount(client, server, s3fsOptions=TIMEOUTS).is_success
        os.kill(server.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert client.post(BOX + "/stop").is_success
            assert sh(client, "echo alive") == "alive"
            assert time.monotonic() - began < 60
        finally:
            os.kill(server.pid, signal.SIGCONT)
        client.delete(BOX)
