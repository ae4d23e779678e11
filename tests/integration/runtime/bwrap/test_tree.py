import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from atoll.host import procfs
from atoll.runtime.bwrap import tree

FAMILY = "import os, time\nfor _ in range(2): os.fork()\ntime.sleep(60)"
"""Four processes: a parent, two children, a grandchild."""


@pytest.fixture
def family() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", FAMILY])
    eventually(lambda: len(tree.members(process.pid)) == 4)
    yield process.pid
    for one in tree.members(process.pid):
        with suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    process.wait()


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def states(root: int) -> set[str]:
    return {one.state for one in tree.members(root)}


def test_members_are_all_descendants_parents_first(family: int) -> None:
    found = tree.members(family)
    assert found[0].pid == family
    seen = {family}
    for one in found[1:]:
        assert one.parent in seen
        seen.add(one.pid)


def test_all_are_stopped_and_go_on(family: int) -> None:
    assert tree.stop(family) == []
    assert states(family) == {"T"}
    tree.go_on(family, [])
    eventually(lambda: "T" not in states(family))


def test_what_was_stopped_before_stays_so(family: int) -> None:
    """A job that its user has suspended must not run because its sandbox slept."""
    suspended = tree.members(family)[-1].pid
    os.kill(suspended, signal.SIGSTOP)
    eventually(lambda: "T" in states(family))
    kept = tree.stop(family)
    assert kept == [suspended]
    tree.go_on(family, kept)
    eventually(lambda: [m.pid for m in tree.members(family) if m.state == "T"] == [suspended])


def test_an_identity_is_that_of_one_process_only(family: int) -> None:
    known = procfs.identity(family)
    assert known
    assert known != procfs.identity(os.getpid())
    assert known == procfs.identity(family)


def test_a_process_that_ended_has_none() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert procfs.identity(process.pid) is None  # a zombie
    process.wait()
    assert procfs.identity(process.pid) is None


def test_nobody_else_is_killed_for_a_number(family: int) -> None:
    """A pid is given to a stranger after a restart of the host, or before."""
    tree.kill(family, "another boot 1")
    assert procfs.identity(family)


def test_usage_counts_processes_memory_and_time(family: int) -> None:
    used = tree.usage(family, 3)
    assert used.pids == 4
    assert used.memory > 1 << 20
    assert used.cpu_time >= 0
    assert tree.usage(1 << 22, 0).pids == 0
