"""Isolated sessions in a real container: what their processes see, and what they cannot do."""

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from e2e.runtime.boxes import Bench, Box
from integration.agent.client import eventually

pytestmark = pytest.mark.e2e

MASKED = "mount | grep ' /proc/' | cut -d' ' -f 3,5- | sort -u"


@pytest.fixture
async def box(bench: Bench) -> AsyncIterator[Box]:
    async with bench.running() as running:
        running.call("session.create", id="own", isolation=True)
        running.call("session.create", id="other", isolation=True)
        running.call("session.create", id="plain")
        yield running


def pids(box: Box, session: str) -> set[int]:
    return {int(pid) for pid in box.sh("cd /proc; echo [0-9]*", session=session).split()}


async def test_a_session_sees_its_own_processes_and_init_only(box: Box) -> None:
    with (
        box.start(["sleep", "601"], session="other", detach=True),
        box.start(["sleep", "602"], session="plain", detach=True),
        box.start(["sleep", "603"], session="own", detach=True) as own,
    ):
        own.until(Kind.STARTED)
        eventually(lambda: box.sh("ps | grep -c '[s]leep 60'").strip() == "3")
        seen = box.sh("ps", session="own")
        assert "sleep 603" in seen
        assert "sleep 601" not in seen
        assert "sleep 602" not in seen
        assert len(pids(box, "own")) < 10  # with the agent's own: init, supervisors, a stub


async def test_a_session_can_signal_no_process_outside(box: Box) -> None:
    with box.start(["sleep", "601"], session="other", detach=True) as other:
        other.until(Kind.STARTED)
        outer = box.sh("ps | grep '[s]leep 601'").split()[0]
        assert "can't kill" in box.sh(f"kill -9 {outer}; true", session="own")
        with box.start(["/bin/sh", "-c", "kill -9 -1; sleep 9"], session="own") as all_of_it:
            list(all_of_it)
        assert box.sh("ps | grep -c '[s]leep 601'").strip() == "1"


async def test_the_pid_that_is_told_is_the_one_the_session_sees(box: Box) -> None:
    with box.start(["sleep", "600"], session="own", detach=True, id="p") as process:
        pid = json.loads(process.until(Kind.STARTED).payload)["pid"]
        assert "sleep" in box.sh(f"cat /proc/{pid}/comm", session="own")
        box.sh(f"kill -TERM {pid}", session="own")
        assert process.result().record["signal"] == "SIGTERM"


async def test_what_is_masked_in_the_sandbox_is_masked_in_the_session(box: Box) -> None:
    assert box.sh(MASKED) == box.sh(MASKED, session="own") != ""
    assert "Read-only" in box.sh("echo x > /proc/sys/kernel/hostname", session="own")


async def test_what_is_mounted_later_is_seen_in_the_session_and_not_the_other_way(
    box: Box,
) -> None:
    """Buckets and volumes are attached while sessions run."""
    box.sh("mkdir /later")
    enter = ["nsenter", f"--target={box.container.pid}", "--mount"]
    subprocess.run([*enter, "mount", "-t", "tmpfs", "none", "/later"], check=True)
    assert " /later " in box.sh("cat /proc/self/mountinfo", session="own")
    subprocess.run([*enter, "umount", "/later"], check=True)
    assert " /later " not in box.sh("cat /proc/self/mountinfo", session="own")
    assert box.sh("grep -c ' /proc ' /proc/self/mountinfo").strip() == "1"


async def test_a_tree_that_hides_from_its_parent_is_ended_by_a_timeout(box: Box) -> None:
    script = "(setsid sh -c 'trap \"\" TERM; sleep 604' &) ; sleep 604"
    assert box.exec(["/bin/sh", "-c", script], session="own", timeout=0.5).record["timed_out"]
    assert box.sh("ps | grep -c '[s]leep 604'").strip() == "0"


async def test_deleting_a_session_ends_all_that_is_in_it(box: Box) -> None:
    box.sh("setsid sleep 605 > /dev/null 2>&1 & echo", session="own")
    with box.start(["sleep", "605"], session="own", detach=True) as process:
        process.until(Kind.STARTED)
    box.call("session.delete", id="own")
    eventually(lambda: box.sh("ps | grep -c '[s]leep 605'").strip() == "0")
    assert box.sh("cat /proc/[0-9]*/status | grep -c '^State:.Z'").strip() == "0"


async def test_orphans_of_a_killed_supervisor_are_ended(box: Box) -> None:
    with box.start(["/bin/sh", "-c", "sleep 606 & kill -9 $PPID; sleep 606"], session="own"):
        eventually(lambda: box.sh("ps | grep -c '[s]leep 606'").strip() == "0")
    assert box.sh("echo ok", session="own") == "ok\n"


async def test_a_killed_init_costs_the_processes_and_not_the_session(box: Box) -> None:
    """Root outside of the session sees it, as it sees all of the sandbox."""
    with box.start(["sleep", "607"], session="own", detach=True) as process:
        process.until(Kind.STARTED)
        lowest = "grep -l '^NSpid:.*\t1$' /proc/[0-9]*/status | cut -d/ -f3"
        for init in box.sh(lowest).split():
            box.sh(f"kill -9 {init}; true")
        eventually(lambda: box.sh("ps | grep -c '[s]leep 607'").strip() == "0")
    eventually(lambda: _works(box))


def _works(box: Box) -> bool:
    with suppress(errors.SandboxError):
        return box.sh("echo ok", session="own") == "ok\n"
    return False


async def test_root_in_the_session_gains_nothing(box: Box) -> None:
    status = box.sh("cat /proc/self/status", session="own")
    assert (
        status.split("CapEff:")[1].split()[0]
        == (box.sh("cat /proc/self/status").split("CapEff:")[1].split()[0])
    )
    assert "Seccomp_filters:\t2" in status
    for command in (
        "mount -t proc proc /mnt", "umount /proc", "unshare -p true", "nsenter -t 1 -m true",
        "cat /proc/1/environ", "ls /proc/1/root/",
    ):  # fmt: skip
        assert box.exec(["/bin/sh", "-c", command], session="own").code != 0, command
