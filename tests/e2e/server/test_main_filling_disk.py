"""The disk of the state directory becomes full in the middle of an operation on files."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from e2e.disks import Disk
from integration.server.engines import EngineProcess, eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

NAMESPACE = "/v2/namespaces/N"
BOX = NAMESPACE + "/sandboxes/a"
FILES = NAMESPACE + "/volumes/v/files"
BIG = 40 << 20
ROOM = 25 << 20
"""Bytes that are free as the operation begins: more than the reserve, less than it takes."""

RESERVE_MB = 5

# A store that shut itself (btrfs, where its file cannot grow) is what programs inside see as I/O error
# or read-only, whichever the kernel came to first; who runs in it is ended when it is opened again.
FULL = {"NO_SPACE", "CONTAINER_UNAVAILABLE", "OPERATION_INTERRUPTED", "DISK_QUOTA_EXCEEDED",
        "FILESYSTEM_ERROR", "BACKUP_CREATE_FAILED", "BACKUP_RESTORE_FAILED", "SNAPSHOT_FAILED"}  # fmt: skip


@pytest.fixture
def client(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx2.Client]:
    monkeypatch.setenv("ATOLL_RESERVE_MB", str(RESERVE_MB))
    engine = EngineProcess(disk.path / "state", level="container")
    try:
        with engine.client() as client:
            client.timeout = 100
            yield client
        assert engine.end() == 0
    finally:
        engine.end(signal.SIGKILL)


def run(client: httpx2.Client, command: str) -> dict[str, Any] | None:
    """Return the result of a command, or nothing where the store is to be opened again first."""
    answer = client.post(BOX + "/exec", json={"command": command})
    return made(answer)


def made(answer: httpx2.Response) -> dict[str, Any] | None:
    if answer.is_success:
        told: dict[str, Any] = answer.json() if answer.content else {}
        return told
    assert answer.json()["code"] in FULL, answer.text
    return None


def listed(client: httpx2.Client) -> dict[str, list[str]]:
    """Return the names of all that is kept."""
    return {
        kind: sorted(
            found.get("id") or found["name"]
            for found in client.get(f"{NAMESPACE}/{kind}").json()[kind]
        )
        for kind in ("sandboxes", "snapshots", "backups", "volumes")
    }


def _backup(client: httpx2.Client, _known: dict[str, Any]) -> httpx2.Response:
    return client.post(BOX + "/backups", json={"dir": "/workspace", "compression": "none"})


def _import(client: httpx2.Client, known: dict[str, Any]) -> httpx2.Response:
    return client.post(NAMESPACE + "/snapshots", content=known["file"])


def _write(client: httpx2.Client, _known: dict[str, Any]) -> httpx2.Response:
    return client.put(FILES, params={"path": "d/f"}, content=os.urandom(BIG))


@pytest.mark.parametrize("operation", [_backup, _import, _write])
def test_an_operation_that_meets_the_end_of_the_disk_leaves_what_was(
    disk: Disk,
    client: httpx2.Client,
    operation: Callable[[httpx2.Client, dict[str, Any]], httpx2.Response],
) -> None:
    known: dict[str, Any] = {}
    assert run(client, f"head -c {BIG} /dev/urandom > big; echo kept > f; sync") is not None
    told = run(client, "sha256sum big f")
    assert told is not None
    snapshot = client.post(BOX + "/snapshots", json={}).json()["id"]
    if operation is _import:
        known["file"] = client.get(f"{NAMESPACE}/snapshots/{snapshot}/export").content
    assert client.post(NAMESPACE + "/volumes", json={"name": "v"}).is_success
    assert client.put(FILES, params={"path": "d/f"}, content=b"whole").is_success
    before = listed(client)

    disk.leave(ROOM)
    refused = operation(client, known)
    assert made(refused) is None, "it had enough room"
    disk.empty()

    assert listed(client) == before
    eventually(lambda: (run(client, "sha256sum big f") or {}).get("stdout") == told["stdout"], 60)
    # A store that failed is opened again first.
    eventually(lambda: client.get(FILES, params={"path": "d/f"}).content == b"whole", 60)
    eventually(lambda: made(operation(client, known)) is not None, 60)
    assert client.post(BOX + "/restore", json={"snapshot": snapshot}).is_success
    for kind, names in listed(client).items():
        for name in names:
            assert client.delete(f"{NAMESPACE}/{kind}/{name}").is_success
    assert client.post("/v2/gc", json={}).json()["items"] == []
