"""What sandboxes without a cgroup are limited to: by process, and their memory by being looked at.

The kernel limits what each process may map, and nothing their sum. So all processes of a sandbox are
measured every `PERIOD`, and where they hold more than it has, the largest of its commands are killed
until the rest fit; the count of kills is in a file that its agent reads as it reads a cgroup's. Between
two looks a sandbox may have more than its limit. Page tables count: one process maps a file of holes until
they take the host's memory. Not seen: files in memory that nobody has mapped, and what else the kernel keeps.
"""

import asyncio
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from atoll.host import procfs
from atoll.host.threads import run_to_end
from atoll.runtime.base import ContainerSpec
from atoll.runtime.bwrap import sizes, tree

LEAST_DATA: Final = 1 << 30
"""Bytes of private memory that a process may map at least: Node.js takes 600 MB to start."""

PERIOD: Final = 0.5
"""Seconds between two looks: one takes some milliseconds for all sandboxes together."""

_EVENT: Final = "oom_kill"

_log = structlog.get_logger(__name__)


def of_processes(spec: ContainerSpec, held: Collection[str] = ()) -> dict[str, int]:
    """Return what each process of a command is limited to, as the agent is told. Pure.

    Args:
        spec: the sandbox.
        held: which of memory, pids and cpu the kernel limits for the sandbox as a whole.

    Processes are counted in the user namespace, so that limit is the sandbox's; the agent has a
    higher one. Address space is not memory in use: browsers and JITs map far more than they touch,
    so the smallest sandbox is given room for them. No file may be larger than the disk.
    """
    found = {"FSIZE": spec.disk} if spec.disk else {}
    if "pids" not in held:
        found["NPROC"] = spec.pids
    if "memory" not in held:
        found["DATA"] = max(spec.memory, LEAST_DATA)
    return found


class Watched(NamedTuple):
    """A sandbox: its first process, what it may have in bytes, and the file with its count.

    `score` is the oom_score_adj that its agent was started with: root inside can give it a higher one.
    """

    pid: int
    identity: str
    limit: int
    events: Path
    score: int


def make_events(path: Path) -> None:
    """Make the file with the count of kills, which is 0."""
    path.write_text(f"{_EVENT} 0\n")


def kills(path: Path) -> int:
    """Return the count of kills in a file; a sandbox that nobody has watched has none."""
    with suppress(OSError, ValueError):
        return int(path.read_text().removeprefix(_EVENT))
    return 0


def victims(
    held: Mapping[int, int], scores: Mapping[int, int], spared: int, limit: int
) -> list[int]:
    """Return which processes are to be ended so that the rest fit, the largest first. Pure.

    Args:
        held: bytes of each process.
        scores: oom_score_adj of each: commands have a higher one than the agent and its supervisors,
            and cannot lower it.
        spared: the score up to which none is ended.
        limit: bytes of all.
    """
    left, found = sum(held.values()), []
    for pid in sorted(held, key=held.__getitem__, reverse=True):
        if left <= limit:
            break
        if scores.get(pid, 0) > spared:
            found.append(pid)
            left -= held[pid]
    return found


def enforce(one: Watched, family: Iterable[procfs.Stat]) -> int:
    """End what is too much of a sandbox; return how many processes that were.

    Args:
        one: the sandbox.
        family: its processes.
    """
    started = {member.pid: member.started for member in family}
    rough = sizes.rough(started)
    if sum(rough.values()) <= one.limit:
        return 0
    chosen = victims(sizes.exact(rough), {pid: score(pid) for pid in started}, one.score, one.limit)
    if chosen:  # told before it happens: who waits for one of them then reads it
        one.events.write_text(f"{_EVENT} {kills(one.events) + len(chosen)}\n")
    for pid in chosen:
        _kill(pid, started[pid])
    return len(chosen)


class MemoryWatch:
    """Looks after all sandboxes of one engine."""

    def __init__(self) -> None:
        self._watched: dict[str, Watched] = {}
        self._looking: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to look."""
        self._looking = asyncio.create_task(self._look(), name="memory of sandboxes")

    async def close(self) -> None:
        """End it; sandboxes that run on are not watched until the next engine does."""
        if self._looking:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def add(self, host_ref: str, one: Watched) -> None:
        """Look after a sandbox; one without a limit is left alone."""
        if one.limit:
            self._watched[host_ref] = one

    def drop(self, host_ref: str) -> None:
        """Forget a sandbox."""
        self._watched.pop(host_ref, None)

    async def _look(self) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(PERIOD, took))  # half of a core at most
            begun = time.monotonic()
            if self._watched:
                try:
                    await run_to_end(self._enforce, dict(self._watched))
                except OSError as error:  # of one look; the next may see what this one did not
                    _log.warning("memory of sandboxes cannot be measured", error=str(error))
            took = time.monotonic() - begun

    def _enforce(self, watched: Mapping[str, Watched]) -> None:
        families = tree.families(one.pid for one in watched.values())
        for host_ref, one in watched.items():
            if procfs.identity(one.pid) != one.identity:
                continue
            if ended := enforce(one, families[one.pid]):
                _log.warning("out of memory", host_ref=host_ref, processes=ended)


def score(pid: int) -> int:
    """Return the oom_score_adj of a process; 0: it has ended."""
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())
    return 0


def _kill(pid: int, started: str) -> None:
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            if (found := procfs.stat(pid)) and found.started == started:
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)
