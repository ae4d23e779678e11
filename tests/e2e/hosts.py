"""One state directory, the engines on it, and what they leave on the host. With real containers."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from atoll.network.plan import group
from atoll.network.rules import table_name
from atoll.storage.label import store_key
from integration.server.engines import EngineProcess

SANDBOXES = "/v2/namespaces/N/sandboxes"


class Host:
    """One state directory and the engines on it."""

    def __init__(self) -> None:
        self.state_dir = Path(tempfile.mkdtemp(prefix="atoll-e2e-", dir="/tmp"))
        self._started: list[EngineProcess] = []

    def start(self, *flags: str, **settings: str) -> EngineProcess:
        """Start an engine; *settings* are its variables beside those of the test."""
        engine = EngineProcess(self.state_dir, *flags, level="container", settings=settings)
        self._started.append(engine)
        assert "error" not in engine.hello, engine.hello
        return engine

    def left(self, engine_id: str) -> list[str]:
        """What this engine made on the host and is still there."""
        found = [line for line in _lines("/proc/self/mountinfo") if f"/{engine_id}-" in line]
        # By walk: groups that go meanwhile are no error to it.
        groups = (Path(top, name) for top, names, _ in os.walk("/sys/fs/cgroup") for name in names)
        found += [str(path) for path in groups if path.name.startswith(f"{engine_id}-")]
        found += [str(path) for path in (self.state_dir / "run").iterdir()]
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
        return found + re.findall(rf"alias {engine_id}-\S+", links.stdout)

    def layers(self) -> list[Path]:
        """The writable layers of all sandboxes."""
        return [path for path in (self.state_dir / "layers").glob("**/upper") if path.is_dir()]

    def close(self) -> None:
        for engine in self._started:
            engine.end(signal.SIGKILL)
        last = self.start()
        with last.client() as client:
            for info in client.get(SANDBOXES).json()["sandboxes"]:
                client.delete(f"{SANDBOXES}/{info['id']}")
        assert last.end() == 0
        assert not os.path.ismount(self.state_dir / "layers")
        shutil.rmtree(self.state_dir)


def reboot(host: Host, engine_id: str) -> None:
    """Take away what a reboot takes from an engine that is dead: all but its directories on disk."""
    groups = list(Path("/sys/fs/cgroup").rglob(f"atoll/{engine_id}"))
    while pids := {pid for top in groups for path in top.rglob("cgroup.procs")
                   for pid in path.read_text().split()}:  # fmt: skip
        for path in Path("/sys/fs/cgroup").rglob(f"atoll/{engine_id}/*/freezer.state"):
            path.write_text("THAWED")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.01)
    for top in groups:
        for folder, _, _ in os.walk(top, topdown=False):
            _removed(Path(folder))
    roots = f"/run/atoll/roots/{store_key(host.state_dir)}"
    for line in reversed(_lines("/proc/self/mountinfo")):
        target = line.split()[4]
        if target.startswith((str(host.state_dir), roots)):
            subprocess.run(["umount", "--lazy", target], check=True)
    shutil.rmtree(roots, ignore_errors=True)
    links = subprocess.run(
        ["ip", "-o", "link", "show", "group", str(group(engine_id))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in re.findall(r"^\d+: (atl\d+)", links.stdout, re.MULTILINE):
        subprocess.run(["ip", "link", "delete", name], check=True)
        for kept in Path("/run/atoll/netns").glob(name):
            subprocess.run(["umount", kept], check=True)
            kept.unlink()
    subprocess.run(["nft", "delete", "table", "inet", table_name(engine_id)], check=True)
    for claim in Path("/run/atoll/ids").iterdir():
        if str(claim.readlink()).startswith(f"{engine_id}/"):
            claim.unlink()


def _removed(folder: Path) -> None:
    """A group stays busy for a moment after its last process."""
    end = time.monotonic() + 10
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def run(client: httpx2.Client, url: str, *command: str) -> dict[str, Any]:
    answer = client.post(url + "/exec", json={"command": list(command)})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body
