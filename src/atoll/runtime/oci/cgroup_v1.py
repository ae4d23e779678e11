"""The groups of one sandbox on cgroup v1, alone or hybrid: one directory in each hierarchy.

Every process stays in ``agent`` of the freezer, which is thus the complete list of them.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from atoll.runtime.base import Usage
from atoll.runtime.oci import cgroup_files as files
from atoll.runtime.oci.cgroup_files import CPU_PERIOD, LIMITING, Limits

_WATCHED = ("freezer", "cpuacct")
"""Controllers that limit nothing, but by which a sandbox is frozen, listed and measured."""


class CgroupV1:
    """One directory in each hierarchy."""

    def __init__(self, hierarchies: Mapping[str, Path], path: PurePosixPath) -> None:
        self._hierarchies, self._path = hierarchies, path

    def _dir(self, controller: str, name: str = "") -> Path:
        return self._hierarchies[controller] / self._path / name

    def make(self, limits: Limits) -> None:
        """Make the group of the commands with its limits."""
        for mount in set(self._hierarchies.values()):
            files.make(mount / self._path)  # in all of them: see `cgroup_files.make`
        for controller in LIMITING:
            files.make(self._dir(controller, "user"))
        memory, cpu = self._dir("memory", "user"), self._dir("cpu", "user")
        files.write(memory / "memory.limit_in_bytes", limits.memory)
        # Memory and swap together: absent where the kernel does not account for swap.
        with suppress(FileNotFoundError):
            files.write(memory / "memory.memsw.limit_in_bytes", limits.memory)
        # What sockets queue is not in the first limit, and no limit of it is the host's memory.
        with suppress(FileNotFoundError):
            files.write(memory / "memory.kmem.tcp.limit_in_bytes", limits.memory // 4)
        files.write(cpu / "cpu.cfs_period_us", CPU_PERIOD)
        files.write(cpu / "cpu.cfs_quota_us", limits.quota)
        files.write(self._dir("pids", "user") / "pids.max", limits.pids)

    def procs_files(self) -> list[Path]:
        """Return the files to write "0" to in order to become a limited command.

        Those of threads, and whoever writes has one: moving oneself alone takes no lock that waits
        for every processor (measured for the three: 0.06 ms, by ``cgroup.procs`` 11 ms).
        """
        return [self._dir(controller, "user") / "tasks" for controller in LIMITING]

    def join_files(self) -> list[Path]:
        """Return the files to write "0" to in order to become a limited process of the sandbox."""
        limiting = {self._hierarchies[controller] for controller in LIMITING}
        others = {self._hierarchies[name] for name in _WATCHED if name in self._hierarchies}
        return [
            *self.procs_files(),
            *(mount / self._path / "tasks" for mount in sorted(others - limiting)),
        ]

    def memory_events_file(self) -> Path:
        """Return the file with the line ``oom_kill N`` of the commands."""
        return self._dir("memory", "user") / "memory.oom_control"

    def pids_events_file(self) -> Path:
        """Return the file with the line ``max N`` of the commands: forks that were refused."""
        return self._dir("pids", "user") / "pids.events"

    def pids(self) -> list[int]:
        """Return every process of the sandbox, in the host's pid namespace."""
        return files.pids(self._dir("freezer"))

    def holds(self, pid: int) -> bool:
        """Whether *pid* is alive and a process of the sandbox (and not a stranger's by reuse)."""
        return files.holds(self._path, pid)

    def set_frozen(self, frozen: bool) -> None:
        """Ask the kernel to freeze or thaw; see `freeze`. No groups: nothing happens."""
        with suppress(FileNotFoundError):
            files.write(self._dir("freezer") / "freezer.state", "FROZEN" if frozen else "THAWED")

    def is_frozen(self) -> bool:
        """Whether every process is frozen."""
        return files.read(self._dir("freezer") / "freezer.state").strip() == "FROZEN"

    def usage(self) -> Usage:
        """Return what the sandbox uses now; zeros when it is gone."""
        memory = self._dir("memory", "user")
        return Usage(
            memory=files.number(memory / "memory.usage_in_bytes")
            - files.keyed(memory / "memory.stat").get("total_inactive_file", 0),
            cpu_time=files.number(self._dir("cpuacct") / "cpuacct.usage") / 1e9,
            pids=files.number(self._dir("pids", "user") / "pids.current"),
            oom_kills=files.keyed(self.memory_events_file()).get("oom_kill", 0),
        )

    def remove(self) -> None:
        """Remove the groups, which must hold no process any more."""
        for mount in set(self._hierarchies.values()):
            files.remove(mount / self._path)
