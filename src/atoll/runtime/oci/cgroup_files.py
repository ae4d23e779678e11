"""Reading and writing the files of one cgroup, whatever its version."""

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from atoll.errors import ContainerUnavailableError

KILL_TIMEOUT: Final = 10.0
"""Seconds until killed processes must be gone."""

CPU_PERIOD: Final = 100_000
"""Microseconds over which the processor limit is kept: the kernel's default."""

LIMITING: Final = ("memory", "pids", "cpu")
"""Controllers that limit commands."""

_POLL: Final = 0.001
_RACES: Final = 10


class Limits(NamedTuple):
    """Limits of the commands of one sandbox. Memory in bytes (swap: none), cpu in cores."""

    memory: int
    cpu: float
    pids: int

    @property
    def quota(self) -> int:
        """Microseconds of processor time in each period; the kernel's least is 1 ms."""
        return max(1_000, round(self.cpu * CPU_PERIOD))


def eventually(condition: Callable[[], bool], timeout: float) -> bool:
    """Poll until *condition* holds or *timeout* seconds are over; return whether it does."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def pids(top: Path) -> list[int]:
    """Return every process in *top* and the groups below it."""
    found: list[int] = []
    for directory, _, _ in os.walk(top):
        found += map(int, read(Path(directory, "cgroup.procs")).split())
    return found


def holds(path: PurePosixPath, pid: int) -> bool:
    """Membership is the identity: no other process is ever in the groups of this sandbox.

    A zombie keeps its membership on v2, so its state is looked at as well.
    """
    memberships = read(Path(f"/proc/{pid}/cgroup")).splitlines()
    mine = any(f"/{path}/" in f"{line}/" for line in memberships)
    return mine and read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] != ["Z"]


def make(group: Path) -> None:
    """Make *group* and those above it, also while `remove` takes an empty one above away."""
    for _ in range(_RACES):
        with suppress(FileNotFoundError):
            group.mkdir(parents=True, exist_ok=True)
            return
    group.mkdir(parents=True, exist_ok=True)


def remove(top: Path) -> None:
    """Remove *top* and the groups below it, and the engine's own when this was its last.

    Raises:
        ContainerUnavailableError: one of them still holds a process.
    """
    for directory, _, _ in os.walk(top, topdown=False):
        if not eventually(partial(_removed, directory), KILL_TIMEOUT):
            raise ContainerUnavailableError(
                f"cgroup {directory} is still in use", context={"reason": "runtime"}
            )
    with suppress(OSError):  # not empty, or not there
        top.parent.rmdir()


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


def write(path: Path, value: object) -> None:
    """Write to an existing file: opening must not make one (the trees of tests are plain)."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)


def read(path: Path) -> str:
    """Return the content of a file; empty when it, or its group, is gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


def number(path: Path) -> int:
    """Return the one number in a file; 0 when it is gone."""
    return int(read(path) or 0)


def keyed(path: Path) -> dict[str, int]:
    """Parse lines of ``key number``."""
    pairs = (line.split() for line in read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
