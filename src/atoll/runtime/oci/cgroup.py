"""The cgroups of one sandbox, on v1 (also hybrid) and v2.

Below ``<hierarchy>/atoll/<engine id>/<host_ref>`` are two siblings: ``agent``, made by the runtime,
with the agent's own small limits, and ``user``, made here, with the limits of the instance. An
out-of-memory kill or a fork bomb among the commands therefore never reaches the agent.

Commands leave ``agent`` only in the hierarchies that limit something (memory, pids, cpu): each move
costs 6 to 13 ms when it is the first for a while. On v1 every process stays in ``agent`` of the
freezer, which is thus the complete list of them; on v2 there is one hierarchy and the parent is.
"""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Protocol

from atoll.errors import ContainerUnavailableError, TimeoutError
from atoll.runtime.base import Usage

ROOT: Final = "atoll"
"""Name of our group at the top of each hierarchy, shared by all engines of the host."""

FREEZE_TIMEOUT: Final = 2.0
"""Seconds until a freeze is given up (a process in an uninterruptible call can hold it off)."""

KILL_TIMEOUT: Final = 10.0
"""Seconds until killed processes must be gone."""

_POLL: Final = 0.001
_CPU_PERIOD: Final = 100_000
_LIMITING = ("memory", "pids", "cpu")


class Limits(NamedTuple):
    """Limits of the commands of one sandbox. Memory in bytes (swap: none), cpu in cores."""

    memory: int
    cpu: float
    pids: int

    @property
    def quota(self) -> int:
        """Microseconds of processor time in each period; the kernel's least is 1 ms."""
        return max(1_000, round(self.cpu * _CPU_PERIOD))


class Hierarchies(NamedTuple):
    """Where the kernel's cgroup file systems are mounted."""

    v1: Mapping[str, Path]  # controller (or name=…) → mount point
    v2: Path | None
    v2_controllers: frozenset[str] = frozenset()

    @property
    def unified(self) -> bool:
        """Whether v2 is what limits here (on a hybrid host v1 holds the controllers)."""
        return "memory" in self.v2_controllers

    @property
    def mode(self) -> str:
        """``v2``, ``v1``, or ``hybrid``: v1 with some controllers in v2."""
        if self.unified:
            return "v2"
        return "hybrid" if self.v2_controllers else "v1"


class Cgroup(Protocol):
    """What the driver does with the groups of one sandbox. All of it may be repeated."""

    def make(self, limits: Limits) -> None:
        """Make the group of the commands with its limits."""

    def procs_files(self) -> list[Path]:
        """Return the files to write "0" to in order to become a limited command."""

    def memory_events_file(self) -> Path:
        """Return the file with the line ``oom_kill N`` of the commands."""

    def pids(self) -> list[int]:
        """Return every process of the sandbox, in the host's pid namespace."""

    def holds(self, pid: int) -> bool:
        """Whether *pid* is alive and a process of the sandbox (and not a stranger's by reuse)."""

    def set_frozen(self, frozen: bool) -> None:
        """Ask the kernel to freeze or thaw; see `freeze`. No groups: nothing happens."""

    def is_frozen(self) -> bool:
        """Whether every process is frozen."""

    def usage(self) -> Usage:
        """Return what the sandbox uses now; zeros when it is gone."""

    def remove(self) -> None:
        """Remove the groups, which must hold no process any more."""


def hierarchies(mountinfo: str, read: Callable[[Path], str]) -> Hierarchies:
    """Find the hierarchies in the text of ``/proc/self/mountinfo``.

    Only mounts of a hierarchy's root count: a bind of a part of one is not where groups are made.
    """
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split(" ", 2)
        if kind == "cgroup2" and v2 is None:
            v2 = Path(fields[4])
        elif kind == "cgroup" and fields[3] == "/":
            names = (o for o in options.split(",") if o not in _MOUNT_OPTIONS)
            v1.update({name: Path(fields[4]) for name in names if name not in v1})
    controllers = read(v2 / "cgroup.controllers").split() if v2 else []
    return Hierarchies(v1, v2, frozenset(controllers))


_MOUNT_OPTIONS = {"rw", "ro", "xattr", "noprefix", "clone_children", "favordynmods"}


def mounted() -> Hierarchies:
    """Return the hierarchies of this host."""
    return hierarchies(Path("/proc/self/mountinfo").read_text(), Path.read_text)


def path_of(engine_id: str, host_ref: str) -> PurePosixPath:
    """Return the group that holds both siblings, absolute within a hierarchy."""
    return PurePosixPath("/", ROOT, engine_id, host_ref)


def of(hierarchies: Hierarchies, engine_id: str, host_ref: str) -> Cgroup:
    """Return the groups of *host_ref*; nothing is made yet."""
    path = path_of(engine_id, host_ref).relative_to("/")
    if hierarchies.unified and hierarchies.v2:
        return CgroupV2(hierarchies.v2, path)
    return CgroupV1(hierarchies.v1, path)


def freeze(cgroup: Cgroup, timeout: float = FREEZE_TIMEOUT) -> None:
    """Freeze every process of the sandbox and wait for it.

    Raises:
        TimeoutError: not all were frozen in time; they run again.
    """
    cgroup.set_frozen(True)
    if not _eventually(cgroup.is_frozen, timeout):
        cgroup.set_frozen(False)
        raise TimeoutError(
            f"the sandbox's processes could not be frozen within {timeout:g} s",
            suggestion="a process waits for a device or a mount that does not answer",
        )


def kill(cgroup: Cgroup, timeout: float = KILL_TIMEOUT) -> None:
    """Kill every process of the sandbox and wait until none is left.

    Raises:
        ContainerUnavailableError: a process could not be ended (it hangs in the kernel).
    """

    def swept() -> bool:
        pids = cgroup.pids()
        for pid in pids:
            _kill(pid, cgroup)
        if pids:
            # Frozen processes take the signal only once they run again.
            cgroup.set_frozen(False)
        return not pids

    if not _eventually(swept, timeout):
        raise ContainerUnavailableError(
            f"{len(cgroup.pids())} processes did not end within {timeout:g} s after SIGKILL",
            context={"reason": "runtime", "pids": cgroup.pids()[:16]},
            suggestion="a process hangs in the kernel; see its state in `ps`",
        )


def _kill(pid: int, cgroup: Cgroup) -> None:
    """Kill *pid* only if it still is what was listed: a number may be taken by a stranger."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if cgroup.holds(pid):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(process)


def _eventually(condition: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


class CgroupV1:
    """One directory in each hierarchy."""

    def __init__(self, hierarchies: Mapping[str, Path], path: PurePosixPath) -> None:
        self._hierarchies, self._path = hierarchies, path

    def _dir(self, controller: str, name: str = "") -> Path:
        return self._hierarchies[controller] / self._path / name

    def make(self, limits: Limits) -> None:
        """Make the group of the commands with its limits."""
        for controller in _LIMITING:
            self._dir(controller, "user").mkdir(parents=True, exist_ok=True)
        memory, cpu = self._dir("memory", "user"), self._dir("cpu", "user")
        _write(memory / "memory.limit_in_bytes", limits.memory)
        # Memory and swap together: absent where the kernel does not account for swap.
        with suppress(FileNotFoundError):
            _write(memory / "memory.memsw.limit_in_bytes", limits.memory)
        _write(cpu / "cpu.cfs_period_us", _CPU_PERIOD)
        _write(cpu / "cpu.cfs_quota_us", limits.quota)
        _write(self._dir("pids", "user") / "pids.max", limits.pids)

    def procs_files(self) -> list[Path]:
        """Return the files to write "0" to in order to become a limited command."""
        return [self._dir(controller, "user") / "cgroup.procs" for controller in _LIMITING]

    def memory_events_file(self) -> Path:
        """Return the file with the line ``oom_kill N`` of the commands."""
        return self._dir("memory", "user") / "memory.oom_control"

    def pids(self) -> list[int]:
        """Return every process of the sandbox, in the host's pid namespace."""
        return _pids(self._dir("freezer"))

    def holds(self, pid: int) -> bool:
        """Whether *pid* is alive and a process of the sandbox (and not a stranger's by reuse)."""
        return _holds(self._path, pid)

    def set_frozen(self, frozen: bool) -> None:
        """Ask the kernel to freeze or thaw; see `freeze`. No groups: nothing happens."""
        with suppress(FileNotFoundError):
            _write(self._dir("freezer") / "freezer.state", "FROZEN" if frozen else "THAWED")

    def is_frozen(self) -> bool:
        """Whether every process is frozen."""
        return _read(self._dir("freezer") / "freezer.state").strip() == "FROZEN"

    def usage(self) -> Usage:
        """Return what the sandbox uses now; zeros when it is gone."""
        memory = self._dir("memory", "user")
        return Usage(
            memory=_int(memory / "memory.usage_in_bytes")
            - _keyed(memory / "memory.stat").get("total_inactive_file", 0),
            cpu_time=_int(self._dir("cpuacct") / "cpuacct.usage") / 1e9,
            pids=_int(self._dir("pids", "user") / "pids.current"),
            oom_kills=_keyed(self.memory_events_file()).get("oom_kill", 0),
        )

    def remove(self) -> None:
        """Remove the groups, which must hold no process any more."""
        for mount in set(self._hierarchies.values()):
            _remove(mount / self._path)


class CgroupV2:
    """One directory in one hierarchy."""

    def __init__(self, mount: Path, path: PurePosixPath) -> None:
        self._mount, self._path = mount, path
        self._dir = mount / path
        self._user = self._dir / "user"

    def make(self, limits: Limits) -> None:
        """Make the group of the commands with its limits."""
        self._user.mkdir(parents=True, exist_ok=True)
        for ancestor in _ancestors(self._mount, self._path):
            _write(ancestor / "cgroup.subtree_control", " ".join(f"+{c}" for c in _LIMITING))
        _write(self._user / "memory.max", limits.memory)
        with suppress(FileNotFoundError):
            _write(self._user / "memory.swap.max", 0)
        _write(self._user / "cpu.max", f"{limits.quota} {_CPU_PERIOD}")
        _write(self._user / "pids.max", limits.pids)

    def procs_files(self) -> list[Path]:
        """Return the files to write "0" to in order to become a limited command."""
        return [self._user / "cgroup.procs"]

    def memory_events_file(self) -> Path:
        """Return the file with the line ``oom_kill N`` of the commands."""
        return self._user / "memory.events"

    def pids(self) -> list[int]:
        """Return every process of the sandbox, in the host's pid namespace."""
        return _pids(self._dir)

    def holds(self, pid: int) -> bool:
        """Whether *pid* is alive and a process of the sandbox (and not a stranger's by reuse)."""
        return _holds(self._path, pid)

    def set_frozen(self, frozen: bool) -> None:
        """Ask the kernel to freeze or thaw; see `freeze`. No groups: nothing happens."""
        with suppress(FileNotFoundError):
            _write(self._dir / "cgroup.freeze", int(frozen))

    def is_frozen(self) -> bool:
        """Whether every process is frozen."""
        return _keyed(self._dir / "cgroup.events").get("frozen") == 1

    def usage(self) -> Usage:
        """Return what the sandbox uses now; zeros when it is gone."""
        return Usage(
            memory=_int(self._user / "memory.current")
            - _keyed(self._user / "memory.stat").get("inactive_file", 0),
            cpu_time=_keyed(self._dir / "cpu.stat").get("usage_usec", 0) / 1e6,
            pids=_int(self._user / "pids.current"),
            oom_kills=_keyed(self.memory_events_file()).get("oom_kill", 0),
        )

    def remove(self) -> None:
        """Remove the groups, which must hold no process any more."""
        _remove(self._dir)


def _ancestors(mount: Path, path: PurePosixPath) -> Iterator[Path]:
    """Every directory from *mount* down to *path*: each must pass its controllers on."""
    yield mount
    for depth in range(1, len(path.parts) + 1):
        yield mount.joinpath(*path.parts[:depth])


def _pids(top: Path) -> list[int]:
    found: list[int] = []
    for directory, _, _ in os.walk(top):
        found += map(int, _read(Path(directory, "cgroup.procs")).split())
    return found


def _holds(path: PurePosixPath, pid: int) -> bool:
    """Membership is the identity: no other process is ever in the groups of this sandbox.

    A zombie keeps its membership on v2, so its state is looked at as well.
    """
    memberships = _read(Path(f"/proc/{pid}/cgroup")).splitlines()
    mine = any(f"/{path}/" in f"{line}/" for line in memberships)
    return mine and _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] != ["Z"]


def _remove(top: Path) -> None:
    for directory, _, _ in os.walk(top, topdown=False):
        if not _eventually(partial(_removed, directory), KILL_TIMEOUT):
            raise ContainerUnavailableError(
                f"cgroup {directory} is still in use", context={"reason": "runtime"}
            )


def _removed(directory: str) -> bool:
    """A group stays busy for a moment after its last process was reaped."""
    try:
        Path(directory).rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _write(path: Path, value: object) -> None:
    """Write to an existing file: opening must not make one (the trees of tests are plain)."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, OSError):
        return ""


def _int(path: Path) -> int:
    return int(_read(path) or 0)


def _keyed(path: Path) -> dict[str, int]:
    """Parse lines of ``key number``."""
    pairs = (line.split() for line in _read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
