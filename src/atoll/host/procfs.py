"""What /proc tells of one process of this host."""

import os
from pathlib import Path
from typing import Final, NamedTuple

_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """The part of /proc/<pid>/stat that is needed. `cpu` in seconds, with children waited for."""

    pid: int
    state: str
    parent: int
    started: str  # ticks since boot: with the pid, the same process and no later one
    cpu: float
    threads: int

    @property
    def ended(self) -> bool:
        """Whether only its parent has to take note of its end."""
        return self.state in {"Z", "X"}


def stat(pid: int) -> Stat | None:
    """Return what the kernel tells of *pid*; None: there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    cpu = sum(map(int, fields[11:15])) / _TICKS
    return Stat(pid, fields[0], int(fields[1]), fields[19], cpu, int(fields[17]))


def identity(pid: int) -> str | None:
    """Return what tells *pid* from every other process of this host, ever; None: it has ended."""
    found = stat(pid)
    if found is None or found.ended:
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {found.started}"
