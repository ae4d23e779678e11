"""Volumes and the life of engines: mounts run on, and end with their sandbox."""

import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from atoll.storage.label import store_key
from atoll.storage.rootfs import BASE
from e2e.hosts import Host, run

pytestmark = pytest.mark.e2e

NAMESPACE = "/v2/namespaces/N"
BOX, OTHER = NAMESPACE + "/sandboxes/box", NAMESPACE + "/sandboxes/other"
VOLUME = NAMESPACE + "/volumes/v"


def ask(client: httpx2.Client, method: str, path: str, **body: Any) -> Any:
    answer = client.request(method, path, **body)
    assert answer.is_success, answer.text
    return answer.json()


def mounts(host: Host) -> list[str]:
    """Targets of volumes that are mounted in roots of this host's sandboxes."""
    own = f"{BASE / store_key(host.state_dir)}/"  # others of this machine have volumes, too
    table = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [line[4] for line in table if "/vol-" in line[3] and line[4].startswith(own)]


def test_a_killed_engine_leaves_volumes_mounted_and_the_next_one_knows_it(host: Host) -> None:
    before = mounts(host)
    first = host.start()
    with first.client() as client:
        ask(client, "POST", NAMESPACE + "/volumes", json={"name": "v", "size": 20_000_000})
        for box in (BOX, OTHER):
            ask(client, "PUT", box, json={"volumes": {"/data": "v"}})
        assert run(client, BOX, "sh", "-c", "echo 1 > /data/f")["exitCode"] == 0
    first.end(signal.SIGKILL)
    assert len(mounts(host)) == len(before) + 1

    second = host.start()
    with second.client() as client:
        assert run(client, BOX, "sh", "-c", "echo 2 >> /data/f; cat /data/f")["stdout"] == "1\n2\n"
        assert ask(client, "GET", VOLUME)["sandboxes"] == ["box"]
        refused = client.post(OTHER + "/exec", json={"command": ["true"]})
        assert (refused.status_code, refused.json()["code"]) == (409, "VOLUME_IN_USE")
        assert client.delete(VOLUME).json()["code"] == "VOLUME_IN_USE"
        ask(client, "DELETE", BOX)
        assert mounts(host) == before
        assert run(client, OTHER, "cat", "/data/f")["stdout"] == "1\n2\n"
        ask(client, "DELETE", OTHER)
        ask(client, "DELETE", VOLUME)
    assert mounts(host) == before
    assert host.layers() == []


def test_a_start_that_dies_with_its_volumes_mounted_leaves_nothing(host: Host) -> None:
    before = mounts(host)
    engine = host.start(ATOLL_FAULTS_POINT="start.volumes")
    with engine.client() as client:
        ask(client, "POST", NAMESPACE + "/volumes", json={"name": "v", "size": 20_000_000})
        ask(client, "PUT", BOX, json={"volumes": {"/data": "v"}})
        with pytest.raises(httpx2.TransportError):
            run(client, BOX, "true")
    assert engine.wait() == -signal.SIGKILL
    assert len(mounts(host)) == len(before) + 1
    with host.start().client() as client:
        assert mounts(host) == before
        assert ask(client, "GET", VOLUME)["sandboxes"] == []
        assert run(client, BOX, "touch", "/data/f")["exitCode"] == 0
        ask(client, "DELETE", BOX)
        ask(client, "DELETE", VOLUME)


def copies(host: Host) -> list[str]:
    return [path.name for path in (host.state_dir / "layers").glob("cow-*")]


def test_a_start_that_dies_with_its_copies_made_leaves_none(host: Host) -> None:
    engine = host.start(ATOLL_FAULTS_POINT="start.volumes")
    with engine.client() as client:
        for name in ("v", "w"):
            body = {"name": name, "size": 20_000_000, "private": True}
            ask(client, "POST", NAMESPACE + "/volumes", json=body)
        ask(client, "PUT", BOX, json={"volumes": {"/data": "v", "/more": "w"}})
        with pytest.raises(httpx2.TransportError):
            run(client, BOX, "true")
    assert engine.wait() == -signal.SIGKILL
    assert len(copies(host)) == 2
    with host.start().client() as client:
        assert copies(host) == []
        assert run(client, BOX, "touch", "/data/f")["exitCode"] == 0
        assert len(copies(host)) == 2
        ask(client, "DELETE", BOX)
        assert copies(host) == []


@pytest.mark.parametrize("point", ["remove.rootfs", "remove.copies"])
def test_a_stop_that_dies_leaves_no_copy_and_no_change_of_the_volume(
    host: Host, point: str
) -> None:
    engine = host.start(ATOLL_FAULTS_POINT=point)
    with engine.client() as client:
        body = {"name": "v", "size": 20_000_000, "private": True}
        ask(client, "POST", NAMESPACE + "/volumes", json=body)
        ask(client, "PUT", BOX, json={"volumes": {"/data": "v"}})
        assert run(client, BOX, "touch", "/data/f")["exitCode"] == 0
        with pytest.raises(httpx2.TransportError):
            client.post(BOX + "/stop", json={})
    assert engine.wait() == -signal.SIGKILL
    with host.start().client() as client:
        assert copies(host) == []
        assert run(client, BOX, "ls", "/data")["stdout"] == ""
        ask(client, "DELETE", BOX)
        ask(client, "DELETE", VOLUME)
    assert host.layers() == []
