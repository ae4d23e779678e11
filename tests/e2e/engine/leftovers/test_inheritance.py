"""The next engine of a host removes what a killed one left whose directory is gone, and only that."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from atoll.engine.leftovers.registry import ENTRIES
from atoll.host import lasting, process
from atoll.storage.idmap import CLAIMS
from atoll.storage.label import store_key
from atoll.storage.rootfs import BASE as ROOTS
from e2e import remains
from integration.server.engines import EngineProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.getuid() != 0, reason="real containers"),
]

BOX = "/v2/namespaces/N/sandboxes/box"


class Home:
    """A state directory, its engines, and what they leave on the host."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="atoll-e2e-", dir="/tmp"))
        self.engine = self.start()
        self.id = str(self.engine.hello["engineId"])

    def start(self) -> EngineProcess:
        self.engine = EngineProcess(self.path, level="container")
        assert "error" not in self.engine.hello, self.engine.hello
        return self.engine

    def exec(self, *command: str) -> Any:
        with self.engine.client() as client:
            done = client.post(BOX + "/exec", json={"command": list(command)}).json()
            assert done.get("exitCode") == 0, done
            return done["stdout"]

    def start_helper(self) -> None:
        """Start what a tunnel is: a program that outlives its engine, here one without a row."""
        words = lasting.marked(["sleep", "1000"], self.id)
        with Path(os.devnull).open("w") as nowhere:
            process.launch(words, [], output=nowhere.fileno())

    def left(self) -> set[str]:
        """Kinds of what exists on the host."""
        mounts = Path("/proc/self/mountinfo").read_text()
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
        tables = subprocess.run(
            ["nft", "list", "tables"], capture_output=True, text=True, check=True
        )
        numbers = [
            line.split()[1].split("@")[0]
            for line in links.stdout.splitlines()
            if f"alias {self.id}-" in line
        ]
        found = {
            "roots": str(ROOTS / store_key(self.path)) in mounts,
            "layers": f" {self.path}/layers " in mounts,
            "cgroups": bool(list(Path("/sys/fs/cgroup").glob(f"**/atoll/{self.id}"))),
            "links": bool(numbers),
            "filter": f"atoll_{self.id}" in tables.stdout,
            "ids": any(str(p.readlink()).startswith(f"{self.id}/") for p in CLAIMS.iterdir()),
            "entry": (ENTRIES / self.id).exists(),
            "loop": f"{self.path}/layers.btrfs" in _backing_files(),
            "helpers": bool(lasting.of_engine(self.id)),
        }
        return {kind for kind, there in found.items() if there}

    def close(self) -> None:
        """Leave nothing, whatever the state of the test."""
        if self.engine.process.poll() is None:
            self.engine.end(signal.SIGKILL)
        lasting.kill_marked(self.id)
        remains.remove(self.path)
        shutil.rmtree(self.path, ignore_errors=True)


def _backing_files() -> str:
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return " ".join(path.read_text() for path in files)


@contextmanager
def homes() -> Iterator[tuple[Home, Home, Home]]:
    """Three with a sandbox each."""
    with ExitStack() as stack:
        made = []
        for _ in range(3):
            made.append(Home())
            stack.callback(made[-1].close)
        yield made[0], made[1], made[2]


def test_only_what_a_lost_engine_left_is_removed() -> None:
    with homes() as (lost, killed, living):
        for home in (lost, killed, living):
            home.exec("sh", "-c", "echo kept > f")
            home.start_helper()
        everything = lost.left()
        assert everything >= {"roots", "cgroups", "links", "filter", "ids", "entry", "helpers"}
        lost.engine.end(signal.SIGKILL)
        killed.engine.end(signal.SIGKILL)
        shutil.rmtree(lost.path, ignore_errors=True)
        assert lost.left() >= {"roots", "cgroups", "links", "filter", "ids", "entry"}
        following = Home()
        assert lost.left() == set()
        assert not (lost.path / "layers").exists()
        following.engine.end()
        following.close()
        assert killed.left() == everything
        killed.start()
        assert killed.left() == everything - {"helpers"}
        for home in (killed, living):
            assert home.exec("cat", "f") == "kept\n"
    for home in (lost, killed, living):
        assert home.left() == set()


def test_an_engine_that_ends_with_nothing_running_leaves_no_entry() -> None:
    home = Home()
    try:
        assert home.left() >= {"entry", "filter"}
        assert home.engine.end() == 0
        assert home.left() == set()
    finally:
        home.close()
