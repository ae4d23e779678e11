"""The process tree below a supervisor: found in /proc, ended by stop, list, kill, repeat.

A supervisor is a subreaper, so double forks and `setsid` stay below it. Everything is stopped
before it is killed: a stopped parent can neither fork again nor reap, so a listed pid cannot
become another process while it is signalled. A process that forks while it is being stopped is
found in the next round.

gVisor knows no subreapers: an orphan is the router's there. It is found by its session: that of the
command, or of something that is still below the supervisor.
"""

import os
import signal
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

MAX_ROUNDS = 100
"""Rounds of stop and list per kill. A fork bomb of 1,000 processes takes about ten."""


_ROUTER = 1
"""Whose children orphans become where there are no subreapers."""


class Origin(NamedTuple):
    """Where a process belongs: the pid of its parent, the id of its session."""

    parent: int
    session: int


def origin_in(stat: bytes) -> Origin | None:
    """Return what a /proc/<pid>/stat line says of it, or None when it is cut.

    The command name may hold spaces, brackets and newlines: fields are counted from its end.
    """
    fields = stat[stat.rfind(b")") + 1 :].split()
    try:
        return Origin(int(fields[1]), int(fields[3]))
    except (IndexError, ValueError):
        return None


def below(root: int, parents: Mapping[int, int]) -> list[int]:
    """Return every process below *root*, parents before children."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    queue = [root]
    for pid in queue:
        queue += children.pop(pid, ())
    return queue[1:]


def descendants(root: int, session: int = -1) -> list[int]:
    """Return the processes below *root*; zombies too, they may have living threads or children.

    Args:
        session: whose orphans belong to it.
    """
    origins = dict(_origins())
    own = origins.get(os.getpid())
    return members(root, origins, session, own.session if own else None)


def members(
    root: int, origins: Mapping[int, Origin], session: int = -1, agents: int | None = None
) -> list[int]:
    """Return every process below *root*, and orphans of their sessions with all below.

    Args:
        agents: the session of the agent's own processes. A stub is still in it when it has just
            been forked; all supervisors are in it, too, and none of them is an orphan.
    """
    parents = {pid: origin.parent for pid, origin in origins.items()}
    found = below(root, parents)
    sessions = {session} | {origins[pid].session for pid in found} - {agents}
    orphans = [
        pid
        for pid, origin in origins.items()
        if origin.parent == _ROUTER and origin.session in sessions
    ]
    return found + [one for pid in orphans for one in (pid, *below(pid, parents))]


def signal_all(root: int, number: int, session: int = -1) -> None:
    """Send signal *number* to every process below *root*, and wake the stopped ones for it."""
    for pid in descendants(root, session):
        send(pid, number)
        if number != signal.SIGSTOP:
            send(pid, signal.SIGCONT)


def kill_all(root: int, session: int = -1) -> None:
    """Stop everything below *root* until nothing new appears, then kill it."""
    stopped: set[int] = set()
    for _ in range(MAX_ROUNDS):
        new = set(descendants(root, session)) - stopped
        if not new:
            break
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped |= new
    for pid in descendants(root, session):
        send(pid, signal.SIGKILL)


def kill_strangers(roots: Collection[int], known: Collection[int]) -> bool:
    """Kill the children of *roots* that are not *known*, with all below; return if there are any."""
    parents = {pid: origin.parent for pid, origin in _origins()}
    strangers = [pid for pid, parent in parents.items() if parent in roots and pid not in known]
    for pid in strangers:
        send(pid, signal.SIGSTOP)
        kill_all(pid)
        send(pid, signal.SIGKILL)
    return bool(strangers)


def _origins() -> Iterator[tuple[int, Origin]]:
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        if (origin := _origin(pid)) is not None:
            yield pid, origin


def _origin(pid: int) -> Origin | None:
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return origin_in(os.read(file, 4096))
    except OSError:
        return None
    finally:
        os.close(file)


def send(pid: int, number: int) -> None:
    """Send a signal to one process, if it is there."""
    with suppress(OSError):
        os.kill(pid, number)
