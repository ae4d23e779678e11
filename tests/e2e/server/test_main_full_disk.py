"""The disk of the state directory fills up under a running engine, and is emptied again."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e import remains
from integration.server.engines import EngineProcess, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

SANDBOXES = "/v2/namespaces/N/sandboxes"


class Disk:
    """A small ext4 with an engine's state directory."""

    def __init__(self, folder: Path) -> None:
        self.image, self.path = folder / "image", folder / "mounted"
        self.path.mkdir()
        with self.image.open("wb") as file:
            file.truncate(400 << 20)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)
        subprocess.run(["mount", "-o", "loop", self.image, self.path], check=True)

    def fill(self) -> None:
        """Leave not one block."""
        with (self.path / "filler").open("wb", buffering=0) as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, os.statvfs(self.path).f_bfree * 1024)
        with (self.path / "rest").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 1024)

    def empty(self) -> None:
        for name in ("filler", "rest"):
            (self.path / name).unlink()

    def close(self) -> None:
        for state_dir in (self.path / "state", self.path):
            remains.remove(state_dir)
        subprocess.run(["umount", self.path], check=True)


@pytest.fixture
def disk() -> Iterator[Disk]:
    if os.geteuid():
        pytest.skip("needs root")
    with tempfile.TemporaryDirectory(prefix="atoll-e2e-", dir="/tmp") as folder:
        made = Disk(Path(folder))
        try:
            yield made
        finally:
            made.close()


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
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("sleep.recorded", marks=pytest.mark.slow),
        pytest.param("remove.container", marks=pytest.mark.slow),
        "destroy.recorded",
    ],
)
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
