"""What this node has left: memory, processes, disk. Read from the kernel, decided without it."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from atoll.settings import MB, MIB, Settings

START_MEMORY: Final = 64 * MIB
"""Bytes counted for a start until it shows in what the kernel says: agent and first command."""

START_PIDS: Final = 16
"""Processes counted for a start."""


SMALL_NODE: Final = 16
"""The reserve of memory is at most this part of a node's: a small one has to work too."""


class Free(NamedTuple):
    """What is left on the node. Memory and disk in bytes."""

    memory: int
    pids: int
    disk: int


class Shortage(NamedTuple):
    """A resource of which too little is left."""

    resource: str
    free: int
    needed: int


ELSEWHERE: Final = Free(memory=sys.maxsize, pids=sys.maxsize, disk=sys.maxsize)
"""Of a host that no sandbox takes anything of."""


def watched(settings: Settings) -> tuple[Free, Callable[[], Free]]:
    """Return what sandboxes leave to this host, and what tells how much is left of it.

    Sandboxes that are Pods run on other hosts: which of them has room the cluster decides.
    """
    if settings.runtime.default == "kubernetes":
        return Free(0, 0, 0), lambda: ELSEWHERE
    return reserve(settings, total_memory()), partial(measured, settings.storage.state_dir)


def reserve(settings: Settings, memory: int) -> Free:
    """Return what sandboxes leave to a node of so many bytes of *memory*."""
    lifecycle = settings.lifecycle
    return Free(
        memory=min(lifecycle.reserve_memory_mib * MIB, memory // SMALL_NODE),
        pids=lifecycle.reserve_pids,
        disk=settings.storage.reserve_mb * MB,
    )


def shortage(free: Free, kept: Free, starts: int, *, new: bool) -> Shortage | None:
    """Return what is missing for *starts* starts at once; None when there is enough.

    Args:
        free: what is left now.
        kept: what must be left then.
        new: whether files are made; a sandbox that has some wakes on a full disk too.
    """
    memory, pids = kept.memory + starts * START_MEMORY, kept.pids + starts * START_PIDS
    if free.memory < memory:
        return Shortage("memory", free.memory, memory)
    if free.pids < pids:
        return Shortage("pids", free.pids, pids)
    if new and free.disk < kept.disk:
        return Shortage("disk", free.disk, kept.disk)
    return None


def total_memory(proc: Path = Path("/proc")) -> int:
    """Return the bytes of memory that this host has."""
    return _kilobytes((proc / "meminfo").read_text())["MemTotal"] * 1024


def measured(state_dir: Path, proc: Path = Path("/proc")) -> Free:
    """Return what is left on this host."""
    disk = os.statvfs(state_dir)
    limits = (int((proc / "sys/kernel" / name).read_text()) for name in ("pid_max", "threads-max"))
    tasks = int((proc / "loadavg").read_text().split()[3].partition("/")[2])
    return Free(
        memory=_kilobytes((proc / "meminfo").read_text())["MemAvailable"] * 1024,
        pids=min(limits) - tasks,
        disk=disk.f_bavail * disk.f_frsize,
    )


def _kilobytes(meminfo: str) -> Mapping[str, int]:
    pairs = (line.split(":") for line in meminfo.splitlines())
    return {name: int(value.split()[0]) for name, value in pairs}
