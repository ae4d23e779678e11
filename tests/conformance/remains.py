"""What an engine and an agent hold: memory at its peak, descriptors, processes. Seen from the host."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import atoll
from atoll.host import procfs
from atoll.runtime.bwrap import tree


def engine_pid(url: str) -> int:
    """Return the process of the engine that listens at *url*."""
    return int(Path(url.removeprefix("unix://")).with_name("engine.lock").read_text())


def status(pid: int | str, name: str) -> int:
    """Return a number of /proc/<pid>/status; memory is in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def descriptors(pid: int) -> int:
    """Return how many a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def peak_of(pid: int | str) -> Callable[[], int]:
    """Return what tells the peak of resident memory from now on, in KiB."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return lambda: status(pid, "VmHWM")


class Agent(Protocol):
    """One agent, with its supervisors, and the commands beside it."""

    def born(self) -> float:
        """Return a number that is higher for later ones."""

    def peak(self) -> int:
        """Return its peak of memory in KiB; without a cgroup, of looks since this was made."""

    def processes(self) -> list[int]:
        """Return its processes, by their pids on the host."""

    def commands(self) -> list[int]:
        """Return those of its commands."""


class Grouped:
    """An agent with a cgroup of its own."""

    def __init__(self, cgroup: Path) -> None:
        self._cgroup = cgroup

    def born(self) -> float:
        return self._cgroup.stat().st_mtime

    def peak(self) -> int:
        return int(_peak_file(self._cgroup).read_text()) >> 10

    def processes(self) -> list[int]:
        return _processes(self._cgroup)

    def commands(self) -> list[int]:
        return _processes(self._cgroup.with_name("user"))


class Rootless:
    """An agent of level `bwrap`, told from commands by what the kernel kills first."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._peak = self._memory()
        threading.Thread(target=self._look, daemon=True).start()

    def born(self) -> float:
        found = procfs.stat(self._first)
        return float(found.started) if found else 0.0

    def peak(self) -> int:
        return self._peak

    def processes(self) -> list[int]:
        return [one for one, commands in self._members() if not commands]

    def commands(self) -> list[int]:
        return [one for one, commands in self._members() if commands]

    def _members(self) -> list[tuple[int, bool]]:
        own = _score(self._first)
        scores = ((one.pid, _score(one.pid)) for one in tree.members(self._first))
        return [(pid, score != own) for pid, score in scores if score is not None]

    def _memory(self) -> int:
        return sum(_anonymous(pid) for pid in self.processes())

    def _look(self) -> None:
        while _score(self._first) is not None:
            self._peak = max(self._peak, self._memory())
            time.sleep(0.02)


async def agents(url: str) -> list[Agent]:
    """Return the agents of an engine that runs on this host."""
    state_dir = Path(url.removeprefix("unix://")).parent
    if (records := state_dir / "bwrap").is_dir():
        known = (json.loads(path.read_text()) for path in records.iterdir())
        return [Rootless(one["pid"]) for one in known if one["pid"]]
    async with atoll.connect(url) as env:
        engine_id = (await env.version()).engine_id
    found = Path("/sys/fs/cgroup").glob(f"**/atoll/{engine_id}/*/agent")
    return [Grouped(path) for path in found if _peak_file(path).exists()]


def agent_peak(found: Sequence[Agent]) -> Callable[[], int]:
    """Return what tells the highest peak of the agents, in KiB."""
    return lambda: max((one.peak() for one in found), default=0)


def _processes(cgroup: Path) -> list[int]:
    return [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]


def _score(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/oom_score_adj").read_text()
    except OSError:  # it ended
        return None


def _anonymous(pid: int) -> int:
    try:
        return status(pid, "RssAnon") if _score(pid) is not None else 0
    except (OSError, StopIteration):
        return 0


def _peak_file(cgroup: Path) -> Path:
    v1, v2 = cgroup / "memory.max_usage_in_bytes", cgroup / "memory.peak"
    return v1 if v1.exists() else v2
