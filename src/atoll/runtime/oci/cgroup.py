"""The cgroups of one sandbox, on v1 (also hybrid) and v2.

Below ``<hierarchy>/atoll/<engine id>/<host_ref>`` are two siblings: ``agent``, made by the runtime,
with the agent's own small limits, and ``user``, made here, with the limits of the instance. An
out-of-memory kill or a fork bomb among the commands therefore never reaches the agent.

Commands leave ``agent`` only in the hierarchies that limit something (memory, pids, cpu).
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Protocol

from atoll.errors import ContainerUnavailableError, TimeoutError
from atoll.runtime.base import Usage
from atoll.runtime.oci.cgroup_files import KILL_TIMEOUT, Limits, eventually
from atoll.runtime.oci.cgroup_v1 import CgroupV1
from atoll.runtime.oci.cgroup_v2 import CgroupV2

ROOT: Final = "atoll"
"""Name of our group at the top of each hierarchy, shared by all engines of the host."""

FREEZE_TIMEOUT: Final = 2.0
"""Seconds until a freeze is given up (a process in an uninterruptible call can hold it off)."""

_FREEZE_ROUND: Final = 0.1
"""Seconds after which all are let run for a moment: one that waits for a frozen one then ends."""


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

    def join_files(self) -> list[Path]:
        """Return the files to write "0" to in order to become a limited process of the sandbox.

        For a runtime that makes no groups: unlike a command, nothing has put it into any.
        """

    def memory_events_file(self) -> Path:
        """Return the file with the line ``oom_kill N`` of the commands."""

    def pids_events_file(self) -> Path:
        """Return the file with the line ``max N`` of the commands: forks that were refused."""

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
    # On a hybrid host a runtime joins the unified hierarchy too.
    unified = {"unified": hierarchies.v2} if hierarchies.v2 else {}
    return CgroupV1({**hierarchies.v1, **unified}, path)


def freeze(cgroup: Cgroup, timeout: float = FREEZE_TIMEOUT) -> None:
    """Freeze every process of the sandbox and wait for it.

    Raises:
        TimeoutError: not all were frozen in time; they run again.
    """

    def frozen() -> bool:
        # Asked again each time: on v1 a process that is made meanwhile may be missed.
        cgroup.set_frozen(True)
        return cgroup.is_frozen()

    deadline = time.monotonic() + timeout
    while not eventually(frozen, min(_FREEZE_ROUND, timeout)):
        cgroup.set_frozen(False)
        if time.monotonic() >= deadline:
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

    if not eventually(swept, timeout):
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
