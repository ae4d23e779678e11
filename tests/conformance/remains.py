"""What an engine and an agent hold: memory at its peak, descriptors, processes. Seen from the host."""

from collections.abc import Callable
from pathlib import Path

import atoll


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


async def agents(url: str) -> list[Path]:
    """Return the cgroups of the agents of an engine, of one hierarchy with memory limits."""
    async with atoll.connect(url) as env:
        engine_id = (await env.version()).engine_id
    found = Path("/sys/fs/cgroup").glob(f"**/atoll/{engine_id}/*/agent")
    return [path for path in found if _peak_file(path).exists()]


def agent_peak(cgroups: list[Path]) -> Callable[[], int]:
    """Return what tells the highest peak of the agents, in KiB."""
    return lambda: max((int(_peak_file(path).read_text()) for path in cgroups), default=0) >> 10


def processes(cgroup: Path) -> list[int]:
    """Return the processes in a cgroup, by their pids on the host."""
    return [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]


def _peak_file(cgroup: Path) -> Path:
    v1, v2 = cgroup / "memory.max_usage_in_bytes", cgroup / "memory.peak"
    return v1 if v1.exists() else v2
