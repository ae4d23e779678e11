"""The groups of one sandbox on cgroup v2: one directory in the only hierarchy."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from atoll.runtime.base import Usage
from atoll.runtime.oci import cgroup_files as files
from atoll.runtime.oci.cgroup_files import CPU_PERIOD, LIMITING, Limits


class CgroupV2:
    """One directory in one hierarchy.

    Args:
        mount: the hierarchy, or the part of it that is ours to manage.
        path: of the directory in it.
        controllers: those of `LIMITING` that *mount* has; of others no limit is set.
    """

    def __init__(
        self, mount: Path, path: PurePosixPath, controllers: Sequence[str] = LIMITING
    ) -> None:
        self._mount, self._path, self._controllers = mount, path, controllers
        self._dir = mount / path
        self._user = self._dir / "user"

    def make(self, limits: Limits) -> None:
        """Make the group of the commands with its limits."""
        files.make(self._user)
        if self._controllers:
            for ancestor in _ancestors(self._mount, self._path):
                wanted = " ".join(f"+{name}" for name in self._controllers)
                files.write(ancestor / "cgroup.subtree_control", wanted)
        if "memory" in self._controllers:
            files.write(self._user / "memory.max", limits.memory)
            with suppress(FileNotFoundError):
                files.write(self._user / "memory.swap.max", 0)
        if "cpu" in self._controllers:
            files.write(self._user / "cpu.max", f"{limits.quota} {CPU_PERIOD}")
        if "pids" in self._controllers:
            files.write(self._user / "pids.max", limits.pids)

    def procs_files(self) -> list[Path]:
        """Return the files to write "0" to in order to become a limited command."""
        return [self._user / "cgroup.procs"]

    def join_files(self) -> list[Path]:
        """Return the files to write "0" to in order to become a limited process of the sandbox."""
        return self.procs_files()

    def memory_events_file(self) -> Path:
        """Return the file with the line ``oom_kill N`` of the commands."""
        return self._user / "memory.events"

    def pids_events_file(self) -> Path:
        """Return the file with the line ``max N`` of the commands: forks that were refused."""
        return self._user / "pids.events"

    def pids(self) -> list[int]:
        """Return every process of the sandbox, in the host's pid namespace."""
        return files.pids(self._dir)

    def holds(self, pid: int) -> bool:
        """Whether *pid* is alive and a process of the sandbox (and not a stranger's by reuse)."""
        return files.holds(self._path, pid)

    def set_frozen(self, frozen: bool) -> None:
        """Ask the kernel to freeze or thaw; see `freeze`. No groups: nothing happens."""
        with suppress(FileNotFoundError):
            files.write(self._dir / "cgroup.freeze", int(frozen))

    def is_frozen(self) -> bool:
        """Whether every process is frozen."""
        return files.keyed(self._dir / "cgroup.events").get("frozen") == 1

    def usage(self) -> Usage:
        """Return what the sandbox uses now; zeros when it is gone."""
        return Usage(
            memory=files.number(self._user / "memory.current")
            - files.keyed(self._user / "memory.stat").get("inactive_file", 0),
            cpu_time=files.keyed(self._dir / "cpu.stat").get("usage_usec", 0) / 1e6,
            pids=files.number(self._user / "pids.current"),
            oom_kills=files.keyed(self.memory_events_file()).get("oom_kill", 0),
        )

    def remove(self) -> None:
        """Remove the groups, which must hold no process any more."""
        files.remove(self._dir)


def _ancestors(mount: Path, path: PurePosixPath) -> Iterator[Path]:
    """Every directory from *mount* down to *path*: each must pass its controllers on."""
    yield mount
    for depth in range(1, len(path.parts) + 1):
        yield mount.joinpath(*path.parts[:depth])
