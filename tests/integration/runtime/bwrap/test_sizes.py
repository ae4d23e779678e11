import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from atoll.runtime.bwrap import sizes, tree

MIB = 1 << 20
FAMILY = """
import os, sys, time
held = b"x" * (50 << 20)
os.fork()
os.fork()
os.write(1, b"ready\\n")
time.sleep(60)
"""


@pytest.fixture
def family() -> Iterator[int]:
    """Four processes with one copy of 50 MiB."""
    process = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE)
    assert process.stdout
    for _ in range(4):
        assert process.stdout.readline() == b"ready\n"
    yield process.pid
    for one in tree.members(process.pid):
        os.kill(one.pid, signal.SIGKILL)
    process.communicate()


def test_exact_sizes_count_pages_once_that_processes_share(family: int) -> None:
    rough = sizes.rough(one.pid for one in tree.members(family))
    assert len(rough) == 4
    assert sum(rough.values()) > 200 * MIB
    assert 50 * MIB < sum(sizes.exact(rough).values()) < 100 * MIB


def test_what_there_is_no_time_for_counts_in_full(
    family: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "LONGEST", 0.0)
    rough = sizes.rough(one.pid for one in tree.members(family))
    assert sizes.exact(rough) == rough


def test_a_process_that_ended_has_no_size() -> None:
    assert sizes.exact(sizes.rough([1 << 22])) == {1 << 22: 0}


def test_use_of_a_sandbox_counts_shared_pages_once(family: int) -> None:
    assert 50 * MIB < tree.usage(family, 0).memory < 100 * MIB
