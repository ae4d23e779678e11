import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from atoll.host import procfs
from atoll.runtime.bwrap import limits, sizes, tree
from atoll.runtime.bwrap.limits import MemoryWatch, Watched

FAMILY = """
import os, sys, time
size = int(sys.argv[1]) << 20
shared = b"x" * size
for _ in range(2):
    if os.fork() == 0:
        open("/proc/self/oom_score_adj", "w").write("700")
        if len(sys.argv) > 2:
            own = b"x" * size
        os.write(1, b"ready\\n")
        time.sleep(60)
time.sleep(60)
"""


class Family:
    """A parent, as the agent is, and two children, as commands are, with *size* MiB shared by all."""

    def __init__(self, events: Path, size: int, *options: str) -> None:
        argv = [sys.executable, "-c", FAMILY, str(size), *options]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert self.process.stdout
        for _ in range(2):
            assert self.process.stdout.readline() == b"ready\n"
        self.events = events
        limits.make_events(events)

    def watched(self, limit: int) -> Watched:
        pid = self.process.pid
        return Watched(pid, procfs.identity(pid) or "", limit << 20, self.events, limits.score(pid))

    @property
    def alive(self) -> int:
        return sum(not one.ended for one in tree.members(self.process.pid))

    def end(self) -> None:
        for one in reversed(tree.members(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def families(tmp_path: Path) -> Iterator[list[Family]]:
    made = [Family(tmp_path / "shared", 60), Family(tmp_path / "own", 40, "own")]
    yield made
    for family in made:
        family.end()


async def test_what_holds_too_much_is_ended_and_counted_and_shared_pages_count_once(
    families: list[Family],
) -> None:
    """Three processes with one copy of 60 MiB are 60 MiB; two with 40 of their own beside are more."""
    sharing, greedy = families
    watch = MemoryWatch()
    watch.add("sharing", sharing.watched(120))
    watch.add("greedy", greedy.watched(110))
    watch.open()
    async with asyncio.timeout(30):
        while not limits.kills(greedy.events):
            await asyncio.sleep(0.05)
        while greedy.alive == 3:
            await asyncio.sleep(0.05)
    await watch.close()
    assert (greedy.alive, limits.kills(greedy.events)) == (2, 1)
    assert (sharing.alive, limits.kills(sharing.events)) == (3, 0)


async def test_a_process_that_took_the_number_of_a_sandbox_is_left_alone(
    families: list[Family],
) -> None:
    watch = MemoryWatch()
    watch.add("gone", families[1].watched(1)._replace(identity="of another"))
    watch._enforce(watch._watched)
    assert families[1].alive == 3


async def test_what_cannot_be_measured_in_time_counts_in_full(
    families: list[Family], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand processes that share memory would have nobody else looked after for half a minute."""
    sharing = families[0]
    watch = MemoryWatch()
    watch.add("sharing", sharing.watched(150))
    watch._enforce(watch._watched)
    assert sharing.alive == 3
    monkeypatch.setattr(sizes, "LONGEST", 0.0)
    watch._enforce(watch._watched)
    assert limits.kills(sharing.events) == 1


HOLES = """
import mmap, os, time
if os.fork():
    time.sleep(60)
open("/proc/self/oom_score_adj", "w").write("700")
size = 40 << 30
held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
held.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, size, 2 << 20):
    held[at]
os.write(1, b"ready\\n")
time.sleep(60)
"""


async def test_page_tables_count(tmp_path: Path) -> None:
    """A process that reads where nothing is has 80 MiB of them, and next to no memory."""
    process = subprocess.Popen([sys.executable, "-c", HOLES], stdout=subprocess.PIPE)
    assert process.stdout
    try:
        assert process.stdout.readline() == b"ready\n"
        events = tmp_path / "events"
        limits.make_events(events)
        identity = procfs.identity(process.pid) or ""
        watch = MemoryWatch()
        for limit, kills in ((300 << 20, 0), (60 << 20, 1)):
            watch.add("holes", Watched(process.pid, identity, limit, events, 0))
            watch._enforce(watch._watched)
            assert limits.kills(events) == kills
    finally:
        for one in reversed(tree.members(process.pid)):
            os.kill(one.pid, signal.SIGKILL)
        process.communicate()
