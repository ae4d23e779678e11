"""Lack of memory: whom the kernel kills for it, and whether it did while a command ran."""

import os
from contextlib import suppress


def give_way(score: int) -> None:
    """Have the kernel kill this process before those with a lower *score* (oom_score_adj)."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"%d" % score)


def oom_kills(events: bytes) -> int:
    """Return the `oom_kill` counter in memory.events (v2) or memory.oom_control (v1)."""
    for line in events.split(b"\n"):
        name, _, value = line.partition(b" ")
        if name == b"oom_kill" and value.strip().isdigit():
            return int(value)
    return 0


class OomCounter:
    """Compares the counter of the commands' cgroup with what it was at the start."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._before = 0

    def mark(self) -> None:
        """Note the count: the command starts."""
        self._before = self._read()

    @property
    def grown(self) -> bool:
        """Whether something was killed since `mark`."""
        return self._read() > self._before

    def _read(self) -> int:
        if self._fd is not None:
            with suppress(OSError):
                return oom_kills(os.pread(self._fd, 4096, 0))
        return 0
