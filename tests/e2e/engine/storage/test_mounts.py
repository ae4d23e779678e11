"""Case L10 and "mounts" of the specification: buckets in real sandboxes, on a real S3 server."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e.hosts import SANDBOXES, Host, run
from integration.buckets import BUCKET, Server, serving
from integration.server.engines import EngineProcess, eventually

pytestmark = pytest.mark.timeout(180)

BOX = SANDBOXES + "/box"
AT = "/workspace/data"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def bucket(server: Server) -> Any:
    """The client of a bucket that is empty."""
    client = server.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        keys = [{"Key": entry["Key"]} for entry in page.get("Contents", [])]
        if keys:
            client.delete_objects(Bucket=BUCKET, Delete={"Objects": keys})
    return client


@pytest.fixture(scope="module")
def shared(server: Server) -> Iterator[tuple[Host, EngineProcess]]:
    """A host whose engine lives through all tests that need no end of it."""
    if os.geteuid():
        pytest.skip("needs root")
    found = Host()
    yield found, started(found, server)
    found.close()


@pytest.fixture
def engine(shared: tuple[Host, EngineProcess]) -> Iterator[EngineProcess]:
    """The shared engine; its sandboxes go with the test."""
    yield shared[1]
    with shared[1].client() as client:
        for info in client.get(SANDBOXES).json()["sandboxes"]:
            client.delete(f"{SANDBOXES}/{info['id']}")


@pytest.fixture
def node(shared: tuple[Host, EngineProcess], engine: EngineProcess) -> Host:
    """The host of the shared engine."""
    return shared[0]


def started(host: Host, server: Server) -> EngineProcess:
    return host.start(ATOLL_STORAGE_BUCKET_ENDPOINTS=server.endpoint)


def mount(
    client: httpx2.Client, server: Server, path: str = AT, url: str = BOX, **fields: Any
) -> httpx2.Response:
    body = {"bucket": BUCKET, "path": path, "endpoint": server.endpoint,
            "credentials": server.credentials, **fields}  # fmt: skip
    return client.post(url + "/mounts", json=body)


def unmount(client: httpx2.Client, path: str = AT) -> httpx2.Response:
    return client.request("DELETE", BOX + "/mounts", params={"path": path})


def sh(client: httpx2.Client, command: str, url: str = BOX) -> str:
    done = run(client, url, "sh", "-c", command)
    return str(done["stdout"] + done["stderr"]).strip()


def clients_of(host: Host) -> list[Path]:
    return list((host.state_dir / "run").glob("*/buckets/*"))


def resident(folder: Path) -> int:
    """Bytes of memory that the largest process of a client takes."""
    group = json.loads((folder / "process").read_bytes())["pid"]
    listed = subprocess.run(
        ["ps", "-eo", "pgid=,rss="], capture_output=True, text=True, check=True
    ).stdout
    sizes = [line.split() for line in listed.splitlines()]
    return max(int(rss) << 10 for pgid, rss in sizes if int(pgid) == group)


def code(answer: httpx2.Response) -> str:
    return str(answer.json()["code"])


def test_files_are_objects_both_ways(engine: EngineProcess, server: Server, bucket: Any) -> None:
    bucket.put_object(Bucket=BUCKET, Key="from/outside.txt", Body=b"hello")
    with engine.client() as client:
        told = mount(client, server).json()
        assert (told["path"], told["active"], told["endpoint"]) == (AT, True, server.endpoint)
        assert sh(client, f"cat {AT}/from/outside.txt") == "hello"
        assert (
            sh(client, f"cd {AT}; echo inside > new; mkdir d; cp new d/f; mv d/f d/g; rm new") == ""
        )
        assert bucket.get_object(Bucket=BUCKET, Key="d/g")["Body"].read() == b"inside\n"
        assert sh(client, f"stat -c %U {AT}/d/g; cd {AT}; find . -type f | sort") == (
            "root\n./d/g\n./from/outside.txt"
        )
        (listed,) = client.get(BOX + "/mounts").json()["mounts"]
        assert listed == told
        assert unmount(client).json() == {"success": True}
        assert sh(client, f"ls -A {AT}") == ""
        assert client.get(BOX + "/mounts").json()["mounts"] == []
        assert code(unmount(client)) == "MOUNT_NOT_FOUND"


def test_a_wrong_request_changes_nothing(
    node: Host, engine: EngineProcess, server: Server, bucket: Any
) -> None:
    key = {"accessKeyId": server.key, "secretAccessKey": "wrong"}
    unknown = {"accessKeyId": "AKIAUNKNOWN", "secretAccessKey": server.secret}
    with engine.client() as client:
        sh(
            client,
            "mkdir /workspace/full; echo > /workspace/full/f; ln -s / /workspace/link; echo > /tmp/f",
        )
        wrong: list[tuple[dict[str, Any], str, str]] = [
            ({"credentials": key}, "BUCKET_MOUNT_ERROR", "SignatureDoesNotMatch"),
            ({"credentials": unknown}, "BUCKET_MOUNT_ERROR", "InvalidAccessKeyId"),
            ({"bucket": "no-such-bucket"}, "BUCKET_MOUNT_ERROR", "NoSuchBucket"),
            ({"credentials": None}, "MISSING_CREDENTIALS", "needs a key"),
            ({"path": "/workspace/full"}, "INVALID_MOUNT_CONFIG", "not empty"),
            ({"path": "/tmp/f"}, "INVALID_MOUNT_CONFIG", "no folder"),
            ({"path": "/workspace/link/x"}, "SECURITY_ERROR", "link"),
            ({"path": "/workspace/link"}, "SECURITY_ERROR", "link"),
            ({"path": "/proc/x"}, "INVALID_MOUNT_CONFIG", "system"),
            ({"path": "/"}, "INVALID_MOUNT_CONFIG", "system"),
            ({"path": "/workspace"}, "INVALID_MOUNT_CONFIG", "not empty"),
            ({"prefix": "a/../b"}, "INVALID_MOUNT_CONFIG", "prefix"),
            ({"s3fsOptions": ["logfile=/etc/passwd"]}, "INVALID_MOUNT_CONFIG", "logfile"),
            ({"s3fsOptions": ["use_cache=/tmp,passwd_file=/x"]}, "INVALID_MOUNT_CONFIG", "option"),
            ({"endpoint": "http://127.0.0.1:1"}, "INVALID_MOUNT_CONFIG", "may not reach"),
            ({"endpoint": "http://169.254.169.254"}, "INVALID_MOUNT_CONFIG", "may not reach"),
        ]  # fmt: skip
        for fields, expected, text in wrong:
            with server.strict():
                answer = mount(client, server, **{"path": AT, **fields})
            assert code(answer) == expected, answer.text
            assert text in answer.json()["message"], answer.text
            assert server.secret not in answer.text
        assert client.get(BOX + "/mounts").json()["mounts"] == []
        assert sh(client, "ls -A /workspace; grep -c fuse /proc/mounts") == "full\nlink\n0"
    assert clients_of(node) == []


def test_a_mount_is_not_covered_and_not_taken_from_its_users(
    engine: EngineProcess, server: Server, bucket: Any
) -> None:
    with engine.client() as client:
        assert mount(client, server).is_success
        for path in (AT, AT + "/below"):
            assert code(mount(client, server, path)) == "INVALID_MOUNT_CONFIG"
        writer = f"exec 3>{AT}/open; echo kept >&3; while [ ! -e /tmp/end ]; do sleep 0.05; done"
        client.post(BOX + "/processes", json={"command": writer, "processId": "writer"})
        eventually(lambda: "open" in sh(client, f"ls {AT}"), 20)
        answer = unmount(client)
        assert (code(answer), answer.json()["context"]["reason"]) == (
            "BUCKET_UNMOUNT_ERROR",
            "busy",
        )
        assert client.get(BOX + "/mounts").json()["mounts"][0]["active"]
        sh(client, "touch /tmp/end")
        eventually(lambda: unmount(client).is_success, 20)
        assert bucket.get_object(Bucket=BUCKET, Key="open")["Body"].read() == b"kept\n"


def test_read_only_is_read_only_for_root_inside(
    engine: EngineProcess, server: Server, bucket: Any
) -> None:
    """Probe 15."""
    bucket.put_object(Bucket=BUCKET, Key="f", Body=b"x")
    with engine.client() as client:
        assert mount(client, server, readOnly=True).is_success
        assert "Read-only" in sh(client, f"echo y > {AT}/f")
        sh(client, f"mount -o remount,rw {AT}; umount {AT}; umount -l {AT}")
        assert "Read-only" in sh(client, f"echo y > {AT}/f; rm -f {AT}/f")
        assert sh(client, f"cat {AT}/f") == "x"


def test_a_prefix_shows_what_is_below_it(
    engine: EngineProcess, server: Server, bucket: Any
) -> None:
    """Case L10 and probe 17: also without an object for the folder, and nothing beside it."""
    bucket.put_object(Bucket=BUCKET, Key="a/b/in", Body=b"x")
    for key in ("a/out", "a/bc/of-another", "a/b.txt"):
        bucket.put_object(Bucket=BUCKET, Key=key, Body=b"y")
    with engine.client() as client:
        answer = mount(client, server, prefix="/a/b")
        assert answer.is_success, answer.text
        assert answer.json()["prefix"] == "a/b"
        assert sh(client, f"ls -A {AT}") == "in"
        assert (
            sh(client, f"cat {AT}/../data/in; cat {AT}/..%2fout 2>&1 | grep -c 'No such'") == "x1"
        )
        sh(client, f"echo z > {AT}/new")
        assert bucket.get_object(Bucket=BUCKET, Key="a/b/new")["Body"].read() == b"z\n"
        sh(client, f"cd {AT}; mv new moved; mv moved ../out; rm -rf {AT}/* {AT}/../bc")
        assert {"a/out", "a/bc/of-another", "a/b.txt"} <= {
            entry["Key"] for entry in bucket.list_objects_v2(Bucket=BUCKET)["Contents"]
        }


def test_a_backup_is_without_it_and_a_restore_never_deletes_it(
    engine: EngineProcess, server: Server, bucket: Any
) -> None:
    bucket.put_object(Bucket=BUCKET, Key="precious", Body=b"x")
    with engine.client() as client:
        sh(client, "mkdir /workspace/p; echo own > /workspace/p/own")
        assert mount(client, server, "/workspace/p/data").is_success
        backup = client.post(BOX + "/backups", json={"dir": "/workspace/p"}).json()
        assert (backup["files"], backup["contentSize"]) == (1, 4)
        back = {"backup": backup["id"]}
        answer = client.post(BOX + "/backups/restore", json=back)
        assert code(answer) == "RESOURCE_BUSY", answer.text
        assert sh(client, "cat /workspace/p/data/precious /workspace/p/own") == "xown"
        assert unmount(client, "/workspace/p/data").is_success
        assert client.post(BOX + "/backups/restore", json=back).is_success
        assert sh(client, "ls -A /workspace /workspace/p") == "/workspace:\np\n\n/workspace/p:\nown"
        assert bucket.head_object(Bucket=BUCKET, Key="precious")["ContentLength"] == 1


def test_an_isolated_session_sees_it_and_its_end(
    engine: EngineProcess, server: Server, bucket: Any
) -> None:
    bucket.put_object(Bucket=BUCKET, Key="f", Body=b"x")
    with engine.client() as client:
        client.post(BOX + "/sessions", json={"id": "apart", "isolation": True})
        assert mount(client, server).is_success
        look = {"command": f"cat {AT}/f; true", "session": "apart"}
        assert client.post(BOX + "/exec", json=look).json()["stdout"] == "x"
        assert unmount(client).is_success
        assert client.post(BOX + "/exec", json=look).json()["stdout"] == ""


def test_a_frozen_sandbox_keeps_it_and_can_lose_it(
    node: Host, engine: EngineProcess, server: Server, bucket: Any
) -> None:
    with engine.client() as client:
        client.put(BOX, json={"sleepMode": "freeze"})
        assert mount(client, server).is_success
        assert mount(client, server, "/workspace/other").is_success
        assert client.post(BOX + "/sleep").json()["state"] == "frozen"
        assert all(one["active"] for one in client.get(BOX + "/mounts").json()["mounts"])
        assert unmount(client).is_success
        assert client.get(BOX).json()["state"] == "frozen"
        assert len(clients_of(node)) == 1
        assert sh(client, f"ls -A {AT}; echo x > /workspace/other/f; cat /workspace/other/f") == "x"


def test_it_comes_back_with_the_sandbox_and_ends_with_it(
    node: Host, engine: EngineProcess, server: Server, bucket: Any
) -> None:
    with engine.client() as client:
        assert mount(client, server).is_success
        sh(client, f"echo 1 > {AT}/f")
        assert client.post(BOX + "/stop").is_success
        assert clients_of(node) == []
        (asleep,) = client.get(BOX + "/mounts").json()["mounts"]
        assert not asleep["active"]
        assert sh(client, f"cat {AT}/f") == "1"
        client.delete(BOX)
        assert clients_of(node) == []
        assert client.get(BOX + "/mounts").json()["mounts"] == []
        assert sh(client, f"ls -A {AT}") == f"ls: cannot access '{AT}': No such file or directory"
    assert processes_of(node) == []


def processes_of(host: Host) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [
        line
        for line in listed.stdout.splitlines()
        if str(host.state_dir) in line and "s3fs" in line
    ]


def test_another_engine_finds_it_served(host: Host, server: Server, bucket: Any) -> None:
    engine = started(host, server)
    with engine.client() as client:
        assert mount(client, server).is_success
        reader = f"exec 3>{AT}/open; echo a >&3; while [ ! -e /tmp/end ]; do sleep 0.05; done; echo b >&3"
        client.post(BOX + "/processes", json={"command": reader, "processId": "writer"})
        eventually(lambda: "open" in sh(client, f"ls {AT}"), 20)
    engine.end(signal.SIGKILL)
    with started(host, server).client() as client:
        assert client.get(BOX + "/mounts").json()["mounts"][0]["active"]
        sh(client, "touch /tmp/end")
        eventually(lambda: unmount(client).is_success, 20)
        assert bucket.get_object(Bucket=BUCKET, Key="open")["Body"].read() == b"a\nb\n"
    assert clients_of(host) == []


def test_a_client_that_died_is_replaced(host: Host, server: Server, bucket: Any) -> None:
    engine = host.start(
        ATOLL_STORAGE_BUCKET_ENDPOINTS=server.endpoint, ATOLL_LIFECYCLE_REAP_INTERVAL="0.5"
    )
    bucket.put_object(Bucket=BUCKET, Key="f", Body=b"x")
    with engine.client() as client:
        assert mount(client, server).is_success
        (folder,) = clients_of(host)
        pid = json.loads((folder / "process").read_bytes())["pid"]
        os.killpg(pid, signal.SIGKILL)
        eventually(lambda: sh(client, f"cat {AT}/f") == "x", 40)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("mount.recorded", marks=pytest.mark.slow),
        "mount.served",
        pytest.param("mount.attached", marks=pytest.mark.slow),
    ],
)
def test_an_engine_that_dies_meanwhile_leaves_a_mount_that_is_made(
    host: Host, server: Server, bucket: Any, point: str
) -> None:
    """The row says what should be; the next engine makes it so, and keeps no secret in a file."""
    bucket.put_object(Bucket=BUCKET, Key="f", Body=b"x")
    first = host.start(ATOLL_STORAGE_BUCKET_ENDPOINTS=server.endpoint, ATOLL_FAULTS_POINT=point)
    with first.client() as client, pytest.raises(httpx2.TransportError):
        mount(client, server)
    first.wait()
    second = host.start(
        ATOLL_STORAGE_BUCKET_ENDPOINTS=server.endpoint, ATOLL_LIFECYCLE_REAP_INTERVAL="0.3"
    )
    with second.client() as client:
        eventually(lambda: client.get(BOX + "/mounts").json()["mounts"][0]["active"], 40)
        assert sh(client, f"cat {AT}/f") == "x"
        assert unmount(client).is_success
    eventually(lambda: clients_of(host) == [], 20)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["unmount.detached", "unmount.stopped"])
def test_an_engine_that_dies_while_it_unmounts_leaves_all_of_a_mount(
    host: Host, server: Server, bucket: Any, point: str
) -> None:
    """Nobody was told that it is gone, so it comes back; what was written is in the bucket."""
    first = host.start(ATOLL_STORAGE_BUCKET_ENDPOINTS=server.endpoint, ATOLL_FAULTS_POINT=point)
    with first.client() as client:
        assert mount(client, server).is_success
        sh(client, f"echo kept > {AT}/f")
        with pytest.raises(httpx2.TransportError):
            unmount(client)
    first.wait()
    assert bucket.get_object(Bucket=BUCKET, Key="f")["Body"].read() == b"kept\n"
    second = host.start(
        ATOLL_STORAGE_BUCKET_ENDPOINTS=server.endpoint, ATOLL_LIFECYCLE_REAP_INTERVAL="0.3"
    )
    with second.client() as client:
        eventually(lambda: client.get(BOX + "/mounts").json()["mounts"][0]["active"], 40)
        assert sh(client, f"cat {AT}/f") == "kept"
        assert unmount(client).is_success
        assert client.get(BOX + "/mounts").json()["mounts"] == []
    eventually(lambda: clients_of(host) == [], 20)


def test_a_dead_endpoint_gives_errors_in_time(host: Host, bucket: Any) -> None:
    """Nothing hangs: the command fails, the engine answers meanwhile, the sandbox ends."""
    with serving() as server, started(host, server).client() as client:
        assert mount(
            client, server, s3fsOptions=["connect_timeout=1", "readwrite_timeout=2", "retries=1"]
        ).is_success
        os.kill(server.pid, signal.SIGSTOP)
        began = time.monotonic()
        assert "error" in sh(client, f"ls {AT}")
        assert time.monotonic() - began < 25
        assert sh(client, "echo alive") == "alive"
        began = time.monotonic()
        assert client.delete(BOX).is_success
        assert time.monotonic() - began < 20
        os.kill(server.pid, signal.SIGCONT)
    assert clients_of(host) == []


LOOK = """
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/mounts 2>/dev/null >/tmp/seen
grep -rlsFaf /tmp/wanted / --exclude-dir=sys --exclude-dir=proc | sort
"""


@pytest.mark.slow
def test_a_wake_does_not_wait_long_for_a_dead_endpoint(host: Host, bucket: Any) -> None:
    with serving() as server, started(host, server).client() as client:
        assert mount(client, server).is_success
        assert client.post(BOX + "/stop").is_success
        os.kill(server.pid, signal.SIGSTOP)
        began = time.monotonic()
        assert sh(client, "echo alive") == "alive"
        assert time.monotonic() - began < 25
        (dead,) = client.get(BOX + "/mounts").json()["mounts"]
        assert not dead["active"]
        assert "does not answer" in dead["reason"]
        assert unmount(client).is_success


def test_the_credentials_are_nowhere_inside_nor_in_any_argv(
    node: Host, engine: EngineProcess, server: Server, bucket: Any
) -> None:
    """Probe 16, with the key of a bucket as the canary."""
    with engine.client() as client:
        assert mount(client, server).is_success
        # What is looked for comes in by standard input: as an argument it would be found.
        client.put(BOX + "/files", params={"path": "/tmp/control"}, content=server.secret)
        wanted = f"{server.secret}\n{server.key}"
        client.put(BOX + "/files", params={"path": "/tmp/wanted"}, content=wanted)
        assert sh(client, LOOK) == "/tmp/control\n/tmp/wanted"
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert server.secret not in listed.stdout
    assert server.secret not in engine.log
    for path in (node.state_dir / "run").rglob("*"):
        if path.is_file():
            assert server.secret.encode() not in path.read_bytes(), path
    assert (node.state_dir / "atoll.db").stat().st_mode & 0o077 == 0
