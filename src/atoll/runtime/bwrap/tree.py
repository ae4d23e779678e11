"""The processes of a sandbox without a cgroup of its own: all that descend from its first one.

Its first process is pid 1 of a pid namespace, so nothing below it ever leaves the tree, and all of
it ends with that one: the kernel sees to it.
"""

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from atoll.errors import ContainerUnavailableError, TimeoutError
from atoll.host import procfs
from atoll.runtime.base import Usage
from atoll.runtime.bwrap import sizes

KILL_TIMEOUT: Final = 10.0
"""Seconds for a tree to end after SIGKILL."""

STOP_TIMEOUT: Final = 2.0
"""Seconds for all processes of a tree to be stopped."""

_STOPPED: Final = frozenset("TtZX")


def members(root: int) -> list[procfs.Stat]:
    """Return *root* and its descendants, each after its parent."""
    return families([root])[root]


def families(roots: Iterable[int]) -> dict[int, list[procfs.Stat]]:
    """Return each root's `members`, by one look at the host's processes."""
    children: dict[int, list[procfs.Stat]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (found := procfs.stat(int(entry.name))):
            children.setdefault(found.parent, []).append(found)
    return {root: _below(root, children) for root in roots}


def _below(root: int, children: Mapping[int, list[procfs.Stat]]) -> list[procfs.Stat]:
    top = procfs.stat(root)
    found = [top] if top else []
    for one in found:
        found.extend(children.get(one.pid, ()))
    return found


def stop(root: int) -> list[int]:
    """Stop all processes, parents before children; return those that were stopped before.

    A parent that is stopped sees nothing of what happens to its children.

    Raises:
        TimeoutError: not all were stopped in time; they run again.
    """
    before = {one.pid for one in members(root) if one.state in "Tt"}
    deadline = time.monotonic() + STOP_TIMEOUT
    while running := [one.pid for one in members(root) if one.state not in _STOPPED]:
        if time.monotonic() > deadline:
            go_on(root, before)
            raise TimeoutError(
                f"the sandbox's processes could not be stopped within {STOP_TIMEOUT:g} s",
                suggestion="a process waits for a device or a mount that does not answer",
            )
        for pid in running:
            _signal(pid, signal.SIGSTOP)
        time.sleep(0.001)
    return sorted(before)


def go_on(root: int, kept: Iterable[int]) -> None:
    """Let all processes but *kept* run, children before parents, who then never see them stopped."""
    left = set(kept)
    for one in reversed(members(root)):
        if one.pid not in left:
            _signal(one.pid, signal.SIGCONT)


def kill(root: int, known: str) -> None:
    """End the process *root*, if it is the one of this identity, and with it all of its namespace.

    Raises:
        ContainerUnavailableError: it did not end (it hangs in the kernel).
    """
    try:
        process = os.pidfd_open(root)
    except ProcessLookupError:
        return
    try:
        if procfs.identity(root) == known:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            if not any(procfs.identity(root) != known for _ in until(KILL_TIMEOUT)):
                raise ContainerUnavailableError(
                    f"a sandbox did not end within {KILL_TIMEOUT:g} s after SIGKILL",
                    context={"reason": "runtime", "pid": root},
                    suggestion="a process hangs in the kernel; see its state in `ps`",
                )
    finally:
        os.close(process)


def usage(root: int, kills: int) -> Usage:
    """Return what the tree uses. Of memory: what no file backs, and page tables (see `sizes`).

    Args:
        root: the first process.
        kills: how many were ended for lack of memory.
    """
    found = members(root)
    return Usage(
        memory=sum(sizes.exact(sizes.rough(one.pid for one in found)).values()),
        cpu_time=sum(one.cpu for one in found),
        pids=sum(one.threads for one in found),
        oom_kills=kills,
    )


def until(seconds: float) -> Iterator[None]:
    """Yield every 2 ms for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.002)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
