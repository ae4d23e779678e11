"""Commands in a real container: what attacks on the agent and on memory look like from outside."""

import json
import os
import time
from collections.abc import AsyncIterator

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from e2e.runtime.boxes import Bench, Box, open_bench
from integration.agent.client import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    opened = await open_bench()
    yield opened
    await opened.close()


@pytest.fixture
async def box(bench: Bench) -> AsyncIterator[Box]:
    async with bench.running(memory=64 << 20, pids=64) as running:
        yield running


async def test_out_of_memory_is_reported_as_such(box: Box) -> None:
    """L11: and the agent, in a cgroup of its own, goes on."""
    result = box.exec(["/bin/sh", "-c", "exec tail -c 500m /dev/zero"])
    assert (result.record["signal"], result.record["oom_killed"]) == ("SIGKILL", True)
    assert box.sh("echo ok") == "ok\n"


async def test_a_kill_by_somebody_is_not_out_of_memory(box: Box) -> None:
    record = box.exec(["/bin/sh", "-c", "kill -9 $$"]).record
    assert (record["signal"], record["oom_killed"]) == ("SIGKILL", False)


async def test_a_fork_bomb_holds_up_no_call_and_is_ended_by_cancel(box: Box) -> None:
    """L12, X07."""
    with box.start(["/bin/sh", "-c", "b() { b | b & }; b; sleep 600"], id="bomb") as connection:
        connection.until(Kind.STARTED)
        time.sleep(0.5)
        began = time.monotonic()
        assert box.exec(["/bin/echo", "ok"]).stdout == b"ok\n"
        assert box.call("fs.stat", path="/")["type"] == "directory"
        assert time.monotonic() - began < 10
        connection.send(Kind.CANCEL)
        assert connection.result().record["cancelled"]
    assert box.sh("ps | grep -c '[s]leep 600'").strip() == "0"


async def test_who_hits_the_limit_of_processes_is_told(box: Box) -> None:
    """A program says "Resource temporarily unavailable" at best."""
    bomb = "i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done; exit 3"
    record = box.exec(["/bin/sh", "-c", bomb]).record
    assert record["pids_limited"]
    box.sh("killall sleep")
    assert not box.exec(["/bin/false"]).record["pids_limited"]


async def test_root_inside_that_kills_everything_ends_no_agent(box: Box) -> None:
    """What its own supervisor did is not known then, and that is what is said."""
    with box.start(["/bin/sh", "-c", "kill -9 -1; sleep 600"], id="all") as connection:
        assert list(connection)[1:] == []
    eventually(lambda: isinstance(_told(box, "all"), errors.CommandExecutionError))
    assert box.sh("echo ok") == "ok\n"


def _told(box: Box, id: str) -> Exception | None:
    """Ask for the outcome; a supervisor that is just being killed still takes the connection."""
    with box.connect() as connection:
        connection.header(op="attach", id=id)
        try:
            connection.until(Kind.EXITED)
        except (EOFError, errors.CommandExecutionError) as error:
            return error
    return None


async def test_where_memory_ends_commands_go_first_and_the_router_last(box: Box) -> None:
    """With the router all of the sandbox would end."""
    told = box.sh("cat /proc/1/oom_score_adj /proc/$PPID/oom_score_adj /proc/self/oom_score_adj")
    router, supervisor, command = (int(line) for line in told.split())
    assert router < supervisor < command


async def test_commands_start_with_no_signal_blocked_or_ignored(box: Box) -> None:
    status = box.exec(["cat", "/proc/self/status"]).stdout.decode()
    found = [line for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn"))]
    assert found == ["SigBlk:\t" + "0" * 16, "SigIgn:\t" + "0" * 16]


async def test_commands_have_the_small_set_and_two_filters(box: Box) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in box.sh("cat /proc/self/status").splitlines()
        if ":\t" in line
    )
    kept = int(status["CapBnd"], 16)
    assert kept == int(status["CapPrm"], 16) == int(status["CapEff"], 16)
    assert not kept & (1 << 19 | 1 << 21)  # SYS_PTRACE, SYS_ADMIN
    assert (status["CapInh"], status["CapAmb"]) == ("0" * 16, "0" * 16)
    assert (status["NoNewPrivs"], status["Seccomp"], status["Seccomp_filters"]) == ("1", "2", "2")


async def test_another_user_has_no_capability(box: Box) -> None:
    found = box.sh("id; grep Cap /proc/self/status", user="user")
    assert found.startswith("uid=1000(user) gid=1000(user)")
    assert all(line.endswith("0" * 16) for line in found.splitlines()[1:4])


async def test_thousands_of_orphans_leave_no_zombie(box: Box) -> None:
    """X24."""
    box.sh("for i in $(seq 1000); do (sleep 0.01 &) 2>/dev/null; done")
    eventually(lambda: "Z" not in box.sh("ps -o stat"))


async def test_an_image_without_bash_keeps_directory_and_variables(box: Box) -> None:
    box.exec("cd /tmp; export A=1", session="default")
    assert box.exec("pwd; echo $A", session="default").stdout == b"/tmp\n1\n"


async def test_a_terminal_works_inside(box: Box) -> None:
    result = box.exec(["/bin/sh", "-c", "tty; stty size"], pty=True, cols=70, rows=20, user="user")
    assert result.stdout.splitlines()[1] == b"20 70"


async def test_the_agents_memory_is_small(box: Box) -> None:
    """Aim: 8 MB for the router, 1.5 MB of its own for each supervisor."""
    box.sh("true")
    time.sleep(0.5)
    with open(f"/proc/{box.pid}/smaps_rollup") as file:
        sizes = dict(line.split(":", 1) for line in file.read().splitlines()[1:])
    assert int(sizes["Pss"].split()[0]) < 16_000
    print(json.dumps({name: value.strip() for name, value in sizes.items()}))


@pytest.mark.parametrize(
    "spoil", ["true", "mkfifo /dev/null", "mkdir /dev/null", "echo >/dev/null"]
)
async def test_a_null_device_that_is_gone_or_replaced_holds_up_no_command(
    box: Box, spoil: str
) -> None:
    """The agent has opened it before anybody inside ran."""
    box.sh(f"rm /dev/null /dev/ptmx; {spoil}; chmod 0 /dev/pts")
    for _ in range(3):
        assert box.sh("cat; echo ok") == "ok\n"
        assert box.exec("cat; echo ok", session="default").stdout == b"ok\n"
    assert box.exec("(sleep 0.5; echo late) & echo early").stdout == b"early\n"
    assert box.exec(["echo", "seen"], pty=True).stdout == b"seen\r\n"


@pytest.mark.parametrize(
    "spoil",
    [
        "rm /etc/{0}",
        "rm /etc/{0}; mkfifo /etc/{0}",
        "rm /etc/{0}; mkdir /etc/{0}",
        "rm /etc/{0}; ln -s {0} /etc/{0}",
        "rm /etc/{0}; ln -s /dev/zero /etc/{0}",
        "truncate -s 1T /etc/{0}",
    ],
)
async def test_the_files_of_users_may_be_anything(box: Box, spoil: str) -> None:
    box.sh("; ".join(spoil.format(name) for name in ("passwd", "group")))
    for _ in range(3):
        assert box.sh("echo $HOME") in {"/\n", "/root\n"}
        assert box.call("fs.stat", path="/")["type"] == "directory"
    with pytest.raises(errors.ValidationFailedError, match="no user"):
        box.sh("true", user="no-such")


async def test_root_inside_changes_no_limit_and_no_schedule_of_pid_1(box: Box) -> None:
    """All of these need only the same user id, or a capability that no command has."""
    script = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
limit = (ctypes.c_uint64 * 2)(0, 0)
mask = (ctypes.c_uint64 * 16)(1)
idle = ctypes.c_int(0)
for name, *arguments in (
    ("prlimit", 1, 7, limit, None), ("sched_setaffinity", 1, 128, mask),
    ("setpriority", 0, 1, 19), ("setpriority", 1, 1, 19), ("setpriority", 2, 0, 19),
    ("sched_setscheduler", 1, 5, ctypes.byref(idle)),
    ("sched_setparam", 1, ctypes.byref(idle)),
    ("syscall", {"x86_64": 251, "aarch64": 30}[os.uname().machine], 1, 1, 3 << 13),
):
    print(name, getattr(libc, name)(*arguments), ctypes.get_errno())
"""
    done = [line.split()[1:] for line in box.python(script).splitlines()]
    assert done == [["-1", "1"]] * 8
    own = (
        "import os; was = os.getpriority(0, 0); os.nice(5); os.sched_setaffinity(0, {0});"
        "print(os.getpriority(0, 0) - was)"
    )
    assert box.python(own) == "5\n"
