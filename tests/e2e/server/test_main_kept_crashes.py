"""The engine dies at each step of a snapshot, fork, restore, backup, import or change of a volume.

Afterwards there is the old or the new, never half of one, and nothing that nobody owns.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from atoll.engine.lifecycle.faults import KEPT
from atoll.host.mounts import mount_at, read_mounts
from atoll.storage import btrfs
from e2e.hosts import Host
from integration.buckets import BUCKET, serving
from integration.server.engines import EngineProcess

pytestmark = [
    pytest.mark.e2e,
    # The HTTP library leaves the socket of a connection that is refused to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAMESPACE = "/v2/namespaces/N"
BOX = NAMESPACE + "/sandboxes/box"
POINTS = [
    point for point in KEPT if not point.startswith(("mount.", "unmount.", "tunnel.", "share."))
]
IN_BUCKETS = [point for point in POINTS if point.startswith(("backup.", "unpack."))]
SOME = ["fork.recorded", "restore.recorded", "backup.written", "resize.limited",
        "contents.removed"]  # fmt: skip


PUBLISHER = NAMESPACE + "/sandboxes/publisher"
FILES = NAMESPACE + "/volumes/v/files"
WHOLE = b"whole" * 100_000

Call = tuple[str, str, dict[str, Any]]


class Kept:
    """A sandbox whose file says "then" in a snapshot and a backup, and "now" in itself."""

    def __init__(self, host: Host, **settings: str) -> None:
        self.host = host
        self._settings = settings
        engine = host.start(**settings)
        with engine.client() as client:
            write(client, "then")
            self.snapshot = ask(client, "POST", BOX + "/snapshots", json={})["id"]
            self.backup = ask(client, "POST", BOX + "/backups", json={"dir": "/workspace"})["id"]
            self.file = client.get(f"{NAMESPACE}/snapshots/{self.snapshot}/export").content
            write(client, "now")
        self.engine = engine

    def die(self, point: str) -> None:
        """Have the engine die at *point* of the call that passes it."""
        what, step = point.split(".")
        calls = self._removals(what) if step == "forgotten" else self._calls(what)
        assert self.engine.end() == 0
        self.engine = self.host.start(ATOLL_FAULTS_POINT=point, **self._settings)
        with self.engine.client() as client:
            for method, path, body in calls:
                with suppress(httpx2.TransportError):
                    assert client.request(method, path, **body).is_success
        assert self.engine.wait() == -signal.SIGKILL, point
        self.engine = self.host.start(**self._settings)

    def _removals(self, what: str) -> list[Call]:
        """Make one more of the kind, and return the call that deletes it."""
        with self.engine.client() as client:
            [(method, path, body)] = self._calls(what)
            made = ask(client, method, path, **body)
        return [("DELETE", f"{NAMESPACE}/{what}s/{made.get('id', 'v')}", {})]

    def _calls(self, what: str) -> list[Call]:
        made: dict[str, list[Call]] = {
            "snapshot": [("POST", BOX + "/snapshots", {"json": {}})],
            "copy": [("POST", BOX + "/fork", {"json": {"id": "fork"}})],
            "fork": [("POST", BOX + "/fork", {"json": {"id": "fork"}})],
            "restore": [("POST", BOX + "/restore", {"json": {"snapshot": self.snapshot}})],
            "backup": [("POST", BOX + "/backups", {"json": {"dir": "/workspace"}})],
            "unpack": [("POST", BOX + "/backups/restore", {"json": {"backup": self.backup}})],
            "import": [("POST", NAMESPACE + "/snapshots", {"content": self.file})],
            "volume": [("POST", NAMESPACE + "/volumes", {"json": {"name": "v"}})],
            "resize": [
                ("POST", NAMESPACE + "/volumes", {"json": {"name": "v", "size": 30_000_000}}),
                ("PATCH", NAMESPACE + "/volumes/v", {"json": {"size": 60_000_000}}),
            ],
            "publish": [
                ("POST", NAMESPACE + "/volumes", {"json": {"name": "v", "private": True}}),
                ("PUT", PUBLISHER, {"json": {"volumes": {"/data": "v"}}}),
                ("PUT", PUBLISHER + "/files", {"params": {"path": "/data/d/f"}, "content": WHOLE}),
                ("POST", NAMESPACE + "/volumes/v/publish", {"json": {"sandbox": "publisher"}}),
            ],
            "contents": [
                ("POST", NAMESPACE + "/volumes", {"json": {"name": "v"}}),
                ("PUT", FILES, {"params": {"path": "d/f"}, "content": WHOLE}),
                ("DELETE", FILES, {"params": {"path": "d", "recursive": True}}),
            ],
        }
        return made[what]

    def check(self) -> None:
        """Use all there is: each thing is whole, and there is no more on the disk."""
        with self.engine.client() as client:
            assert read(client, BOX) in {"then", "now"}
            collected(client)
            for snapshot in ask(client, "GET", NAMESPACE + "/snapshots")["snapshots"]:
                fork = {"id": "look", "fromSnapshot": snapshot["id"]}
                assert ask(client, "POST", BOX + "/fork", json=fork)["forks"][0]["error"] is None
                assert read(client, NAMESPACE + "/sandboxes/look") in {"then", "now"}
                ask(client, "DELETE", NAMESPACE + "/sandboxes/look")
            if client.get(NAMESPACE + "/sandboxes/fork").status_code == 200:
                assert read(client, NAMESPACE + "/sandboxes/fork") in {"then", "now"}
            for backup in ask(client, "GET", NAMESPACE + "/backups")["backups"]:
                ask(client, "POST", BOX + "/backups/restore", json={"backup": backup["id"]})
                assert read(client, BOX) in {"then", "now"}
            ask(client, "DELETE", PUBLISHER)
            for volume in ask(client, "GET", NAMESPACE + "/volumes")["volumes"]:
                self.check_volume(client, volume)
            boxes = ask(client, "GET", NAMESPACE + "/sandboxes")["sandboxes"]
            assert len(self.host.layers()) >= len(boxes)

    def check_volume(self, client: httpx2.Client, volume: dict[str, Any]) -> None:
        """Use a volume, then delete it: its limit and its files are what is told of them."""
        found = client.get(FILES, params={"path": "d/f"})
        assert found.status_code == 404 or found.content == WHOLE
        ask(client, "PUT", FILES, params={"path": "f"}, content=WHOLE)
        assert client.get(FILES, params={"path": "f"}).content == WHOLE
        (layer,) = (self.host.state_dir / "layers").glob("vol-*")
        assert [*(layer / "work").iterdir()] == []
        entry = mount_at(layer.parent, read_mounts())
        assert entry
        limit = btrfs.Sysfs.of_device(entry.source).limit(btrfs.subvolume_id(layer))
        assert limit == volume["size"]
        ask(client, "DELETE", f"{NAMESPACE}/volumes/{volume['name']}")


def ask(client: httpx2.Client, method: str, path: str, **body: Any) -> Any:
    answer = client.request(method, path, **body)
    assert answer.is_success, answer.text
    return answer.json()


def collected(client: httpx2.Client) -> None:
    """Nothing is left that nobody owns; of a bucket, after it was looked at twice."""
    end = time.monotonic() + 20
    while items := ask(client, "POST", "/v2/gc", json={})["items"]:
        assert {item["kind"] for item in items} == {"note"}
        assert time.monotonic() < end
        ask(client, "POST", "/v2/gc", json={"dryRun": False})


def write(client: httpx2.Client, text: str) -> None:
    ask(client, "PUT", BOX + "/files", params={"path": "/workspace/f"}, content=text.encode())


def read(client: httpx2.Client, box: str) -> str:
    return client.get(box + "/files", params={"path": "/workspace/f"}).text


@pytest.fixture
def kept() -> Iterator[Kept]:
    if os.geteuid():
        pytest.skip("needs root")
    host = Host()
    yield Kept(host)
    host.close()


def fight(kept: Kept, points: list[str]) -> None:
    for point in points:
        try:
            kept.die(point)
            kept.check()
        except BaseException as error:
            error.add_note(f"point {point}")
            raise


def clean(kept: Kept) -> None:
    """Nothing is stored any more when everything was deleted."""
    engine: EngineProcess = kept.engine
    with engine.client() as client:
        for page, id in (("sandboxes", "id"), ("snapshots", "id"), ("backups", "id")):
            for found in ask(client, "GET", f"{NAMESPACE}/{page}")[page]:
                ask(client, "DELETE", f"{NAMESPACE}/{page}/{found[id]}")
        collected(client)
    state = kept.host.state_dir
    assert kept.host.layers() == []
    assert [*(state / "backups").iterdir()] == []
    assert [*(state / "layers" / ".snapshots").glob("*")] == []


@pytest.mark.timeout(180)
def test_after_some_deaths_there_is_the_old_or_the_new(kept: Kept) -> None:
    fight(kept, SOME)
    clean(kept)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_after_every_death_there_is_the_old_or_the_new(kept: Kept) -> None:
    fight(kept, POINTS)
    clean(kept)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_in_a_bucket_too_there_is_the_old_or_the_new_after_every_death() -> None:
    if os.geteuid():
        pytest.skip("needs root")
    with serving() as server:
        bucket, host = server.client(), Host()
        bucket.put_object(Bucket=BUCKET, Key="backups/of-others/data.00000", Body=b"x")
        kept = Kept(
            host, BACKUP_BUCKET_NAME=BUCKET, BACKUP_BUCKET_ENDPOINT=server.endpoint,
            R2_ACCESS_KEY_ID=server.key, R2_SECRET_ACCESS_KEY=server.secret,
        )  # fmt: skip
        fight(kept, IN_BUCKETS)
        clean(kept)
        (left,) = bucket.list_objects_v2(Bucket=BUCKET)["Contents"]
        assert left["Key"] == "backups/of-others/data.00000"
        kept.engine.end()
        host.close()
