"""Host processes that outlive the engine: how a later one knows them again, and ends them.

A number is not enough, since it may belong to another process by then: boot and moment of its start tell
them apart. A process that was started and not written down, because the engine died in between, is
found by a mark in its environment, which its children inherit.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec

from atoll.host import procfs
from atoll.host.waiting import readable

_PROC = Path("/proc")
_MARK = "ATOLL_HELPER_OF"


class Running(msgspec.Struct, frozen=True):
    """A process, told from a later one of the same number by the moment it started."""

    pid: int
    started: str


def identified(pid: int) -> Running:
    """Return the process of number *pid*; one that has ended already is never `alive`."""
    return Running(pid, procfs.identity(pid) or "")


def alive(found: Running) -> bool:
    """Whether the process has not ended."""
    return procfs.identity(found.pid) == found.started


async def ended(found: Running) -> None:
    """Wait for the end of a process, whoever's child it is."""
    try:
        exited = os.pidfd_open(found.pid)
    except ProcessLookupError:
        return
    try:
        if alive(found):
            await readable(exited)
    finally:
        os.close(exited)
    reap(found)


def kill(found: Running) -> None:
    """Kill a process that leads its session, with its group. Idempotent; returns before the end."""
    if alive(found):
        with suppress(ProcessLookupError):
            os.killpg(found.pid, signal.SIGKILL)
    reap(found)


def reap(found: Running) -> None:
    """Take what is left of a child that has ended."""
    with suppress(ChildProcessError):
        os.waitpid(found.pid, os.WNOHANG)


def marked(argv: list[str], engine_id: str) -> list[str]:
    """Return a command line that runs *argv* with the mark of an engine."""
    return ["env", f"{_MARK}={engine_id}", *argv]


def of_engine(engine_id: str) -> list[Running]:
    """Return every process with the mark of an engine. Blocking: 20 µs for each of the host's."""
    mark = f"{_MARK}={engine_id}".encode()
    found = []
    for path in _PROC.iterdir():
        if path.name.isdigit():
            with suppress(OSError):  # ended, or somebody else's
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(identified(int(path.name)))
    return found


def kill_marked(engine_id: str, *, but: frozenset[int] = frozenset()) -> None:
    """Kill every process with the mark of an engine, save the sessions of those named. Blocking."""
    for found in of_engine(engine_id):
        with suppress(ProcessLookupError):
            if os.getsid(found.pid) not in but and alive(found):
                os.kill(found.pid, signal.SIGKILL)
        reap(found)
