"""The disk of the state directory fills up under a running engine, and is emptied again."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import httpx2
import pytest

from e2e.disks import Disk
from integration.server.engines import EngineProcess, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

SANDBOXES = "/v2/namespaces/N/sandboxes"


@pytest.fixture
def engine(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineProcess]:
    monkeypatch.setenv("ATOLL_RESERVE_MB", "20")
    found = EngineProcess(disk.path / "state", level="container")
    try:
        assert "error" not in found.hello, found.hello
        yield found
    finally:
        found.end(signal.SIGKILL)


def run(client: httpx2.Client, id: str, command: Any) -> httpx2.Response:
    return client.post(f"{SANDBOXES}/{id}/exec", json={"command": command})


def code(answer: httpx2.Response) -> str:
    """The code of a typed error."""
    told: str = answer.json()["code"]
    return told


def test_an_engine_on_a_full_disk_refuses_what_is_new_and_still_stops_and_destroys(
    disk: Disk, engine: EngineProcess
) -> None:
    with engine.client() as client:
        assert run(client, "a", "echo kept > f; sync").json()["exitCode"] == 0
        assert run(client, "b", ["true"]).status_code == 200
        disk.fill()
        output = run(client, "a", ["head", "-c", "900000", "/dev/zero"]).json()
        assert (output["exitCode"], len(output["stdout"])) == (0, 900_000)
        # What is over a MiB is buffered on the disk, whose space is all taken.
        assert code(run(client, "a", ["head", "-c", "3000000", "/dev/zero"])) == "NO_SPACE"
        refused = run(client, "new", ["true"])
        assert code(refused) in {"NO_SPACE", "CONTAINER_UNAVAILABLE"}
        assert client.post(f"{SANDBOXES}/a/stop").json()["state"] == "stopped"
        assert client.delete(f"{SANDBOXES}/b").status_code == 200
        assert client.get(f"{SANDBOXES}/b").status_code == 404
        assert client.get(f"{SANDBOXES}/new").status_code in {200, 404}
        left = {path.name for path in (disk.path / "state/run").iterdir()}
        assert left == set()
        disk.empty()

        def works() -> bool:
            return run(client, "new", ["true"]).status_code == 200

        eventually(works, 20)
        assert run(client, "a", "cat f").json()["stdout"] == "kept\n"
        layers = disk.path / "state/layers"
        for info in client.get(SANDBOXES).json()["sandboxes"]:
            client.delete(f"{SANDBOXES}/{info['id']}")
        eventually(lambda: not [p for p in layers.iterdir() if not p.name.startswith(".")], 40)
    assert engine.end() == 0


def test_a_layer_store_that_failed_is_opened_again_when_there_is_space(
    disk: Disk, engine: EngineProcess
) -> None:
    """btrfs shuts itself when its file cannot grow; sandboxes come back with what was kept."""
    with engine.client() as client:
        run(client, "a", "echo kept > f; sync")
        disk.fill()
        write = "head -c 4000000 /dev/urandom > big; sync; touch x"

        def shut() -> bool:
            run(client, "a", ["sh", "-c", write])
            return bool(os.statvfs(disk.path / "state/layers").f_flag & os.ST_RDONLY)

        eventually(shut, 20)
        disk.empty()
        eventually(lambda: client.get(f"{SANDBOXES}/a").json()["state"] == "stopped", 10)
        eventually(lambda: run(client, "a", ["true"]).status_code == 200, 10)
        assert run(client, "a", "cat f; echo new > f; cat f").json()["stdout"] == "kept\nnew\n"
        client.delete(f"{SANDBOXES}/a")
    assert engine.end() == 0


def test_an_engine_that_cannot_start_on_a_full_disk_says_so(disk: Disk) -> None:
    disk.fill()
    engine = EngineProcess(disk.path, level="container")
    engine.end(signal.SIGKILL)
    assert engine.hello["error"]["code"] == "NO_SPACE"


# The HTTP library leaves the socket of a connection that is refused to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("point", ["sleep.recorded", "remove.container", "destroy.recorded"])
def test_an_engine_that_dies_on_a_full_disk_leaves_the_next_one_enough(
    disk: Disk, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOLL_RESERVE_MB", "20")
    state_dir = disk.path / "state"
    first = EngineProcess(state_dir, level="container", settings={"ATOLL_FAULTS_POINT": point})
    with first.client() as client:
        assert run(client, "kept", "echo kept > f; sync").json()["exitCode"] == 0
        assert run(client, "gone", ["true"]).status_code == 200
        disk.fill()
        for call in (("POST", "/kept/stop"), ("DELETE", "/gone")):
            with suppress(httpx2.TransportError):
                client.request(call[0], SANDBOXES + call[1])
    assert first.wait() == -signal.SIGKILL
    second = EngineProcess(state_dir, level="container")
    try:
        assert "error" not in second.hello, second.hello
        with second.client() as client:
            assert client.post(f"{SANDBOXES}/kept/stop").json()["state"] == "stopped"
            client.delete(f"{SANDBOXES}/gone")
            assert {path.name for path in (state_dir / "run").iterdir()} == set()
            disk.empty()
            eventually(lambda: run(client, "kept", ["true"]).is_success, 20)
            assert run(client, "kept", "cat f").json()["stdout"] == "kept\n"
            client.delete(f"{SANDBOXES}/kept")
    finally:
        second.end()


NAMESPACE = "/v2/namespaces/N"
BOX = SANDBOXES + "/a"
FILES = NAMESPACE + "/volumes/v/files"
WHOLE = b"whole" * 100_000
# A store that shut itself is an I/O error or read-only to programs inside, whichever the kernel came
# to first, and ends them when it is opened again.
FULL = {"NO_SPACE", "CONTAINER_UNAVAILABLE", "OPERATION_INTERRUPTED", "DISK_QUOTA_EXCEEDED", "FILESYSTEM_ERROR",
        "BACKUP_CREATE_FAILED", "BACKUP_RESTORE_FAILED", "SNAPSHOT_FAILED"}  # fmt: skip


def made(answer: httpx2.Response) -> dict[str, Any] | None:
    """Return what was made, or nothing where there was no space for it."""
    if answer.is_success:
        told: dict[str, Any] = answer.json()
        return told
    assert code(answer) in FULL, answer.text
    return None


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_on_a_full_disk_nothing_is_lost_of_what_was_kept_or_is_told_to_be(
    disk: Disk, engine: EngineProcess
) -> None:
    with engine.client() as client:
        client.timeout = 60
        assert run(client, "a", "echo kept > f; sync").json()["exitCode"] == 0
        snapshots = [client.post(BOX + "/snapshots", json={}).json()["id"]]
        backups = [client.post(BOX + "/backups", json={"dir": "/workspace"}).json()["id"]]
        file = client.get(f"{NAMESPACE}/snapshots/{snapshots[0]}/export").content
        assert client.post(NAMESPACE + "/volumes", json={"name": "v"}).is_success
        assert client.put(FILES, params={"path": "d/f"}, content=WHOLE).is_success
        disk.fill()
        snapshots += _id(client.post(BOX + "/snapshots", json={}))
        backups += _id(client.post(BOX + "/backups", json={"dir": "/workspace"}))
        snapshots += _id(client.post(NAMESPACE + "/snapshots", content=file))
        made(client.post(BOX + "/backups/restore", json={"backup": backups[0]}))
        forks = made(client.post(BOX + "/fork", json={"id": "fork", "count": 3}))
        other = made(client.post(NAMESPACE + "/volumes", json={"name": "other"}))
        written = made(client.put(FILES, params={"path": "new"}, content=WHOLE))
        made(client.put(FILES, params={"path": "d/f"}, content=WHOLE))
        made(client.patch(NAMESPACE + "/volumes/v", json={"size": 300_000_000}))
        made(client.post(BOX + "/restore", json={"snapshot": snapshots[0]}))
        assert client.get(NAMESPACE + "/disk").status_code < 500
        disk.empty()
        eventually(lambda: _is_kept(client, "a"), 60)
        calls = [("/restore", {"snapshot": one}) for one in snapshots]
        calls += [("/backups/restore", {"backup": one}) for one in backups]
        for path, body in calls:  # the store may have to be opened again first
            eventually(partial(_done, client, BOX + path, body), 60)
            eventually(lambda: _is_kept(client, "a"), 60)
        for fork in [one for one in (forks or {"forks": []})["forks"] if one["error"] is None]:
            eventually(partial(_is_kept, client, fork["id"]), 30)
        assert client.get(FILES, params={"path": "d/f"}).content == WHOLE
        assert not written or client.get(FILES, params={"path": "new"}).content == WHOLE
        assert client.get(NAMESPACE + "/volumes/other").is_success == (other is not None)
        for kind in ("sandboxes", "snapshots", "backups", "volumes"):
            for found in client.get(f"{NAMESPACE}/{kind}").json()[kind]:
                client.delete(f"{NAMESPACE}/{kind}/{found.get('id') or found['name']}")
        assert client.post("/v2/gc", json={}).json()["items"] == []
    assert engine.end() == 0


def _is_kept(client: httpx2.Client, id: str) -> bool:
    """Whether a sandbox has what it had; one whose store is opened again meanwhile says so."""
    told = made(run(client, id, "cat f"))
    return told is not None and told["stdout"] == "kept\n"


def _done(client: httpx2.Client, url: str, body: dict[str, str]) -> bool:
    return made(client.post(url, json=body)) is not None


def _id(answer: httpx2.Response) -> list[str]:
    told = made(answer)
    return [told["id"]] if told else []
