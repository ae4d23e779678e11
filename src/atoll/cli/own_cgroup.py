"""What the kernel holds a user's processes to as a whole: the cgroup (v2) they are in, and those above.

A user without root starts an engine in a scope of systemd with limits, and all its sandboxes are in it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from atoll.runtime.bwrap import groups

MOUNT: Final = Path("/sys/fs/cgroup")


class Bounds(NamedTuple):
    """The least of what each group on the way allows; None: no limit. Memory in bytes, cpu in cores."""

    memory: int | None = None
    cpu: float | None = None
    pids: int | None = None

    def __str__(self) -> str:
        """Return them in words; empty where there are none."""
        words = (
            (self.memory, f"memory {(self.memory or 0) / (1 << 30):.3g} GiB"),
            (self.cpu, f"{self.cpu or 0:.3g} cpus"),
            (self.pids, f"{self.pids} processes"),
        )
        return ", ".join(text for value, text in words if value is not None)


def own() -> Bounds:
    """Return the limits of this process."""
    return bounds(Path("/proc/self/cgroup").read_text())


def bounds(told: str, mount: Path = MOUNT) -> Bounds:
    """Return the limits of a process.

    Args:
        told: its /proc/<pid>/cgroup.
        mount: where cgroup v2 is mounted. In a hybrid layout, with v1 there, nothing is found.
    """
    if (own := groups.unified(told)) is None:
        return Bounds()
    place = mount / own
    way = [place, *place.parents][: len(own.parts)]
    memory = _least(_limit(group / "memory.max") for group in way)
    pids = _least(_limit(group / "pids.max") for group in way)
    cpu = _least(_limit(group / "cpu.max") for group in way)
    return Bounds(_whole(memory), cpu, _whole(pids))


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _least(found: Iterable[float | None]) -> float | None:
    return min((one for one in found if one is not None), default=None)


def _limit(file: Path) -> float | None:
    """Return the limit in *file*, "max" or a number; of cpu.max, the share of its period."""
    try:
        limit, *period = file.read_text().split()
        return float(limit) / float(period[0] if period else 1)
    except (OSError, ValueError):  # "max", or a controller that is not here
        return None
