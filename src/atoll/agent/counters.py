"""What the kernel counts of the commands' cgroup: kills for lack of memory, processes refused."""

import os
from contextlib import suppress


def counted(events: bytes, name: bytes) -> int:
    """Return the counter *name* in a file of lines ``name number``."""
    for line in events.split(b"\n"):
        found, _, value = line.partition(b" ")
        if found == name and value.strip().isdigit():
            return int(value)
    return 0


class Counter:
    """Compares a counter with what it was when a command started.

    Args:
        fd: of the file; None: this level has none, and the counter never grows.
        name: of its line.
    """

    def __init__(self, fd: int | None, name: bytes) -> None:
        self._fd, self._name = fd, name
        self._before = 0

    def mark(self) -> None:
        """Note the count: the command starts."""
        self._before = self._read()

    @property
    def grown(self) -> bool:
        """Whether it counted something since `mark`."""
        return self._read() > self._before

    def _read(self) -> int:
        if self._fd is not None:
            with suppress(OSError):
                return counted(os.pread(self._fd, 4096, 0), self._name)
        return 0


def oom_kills(fd: int | None) -> Counter:
    """Return the counter of kills, in memory.events (cgroup v2) or memory.oom_control (v1)."""
    return Counter(fd, b"oom_kill")


def refused_processes(fd: int | None) -> Counter:
    """Return the counter of forks refused for the limit of processes, in pids.events."""
    return Counter(fd, b"max")
