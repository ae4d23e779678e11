import os
import signal
import time
from pathlib import Path

import pytest

from atoll.agent.config import Config
from atoll.agent.forked import Stub

CONFIG = Config(confine=False, files=1024)
PLAN = {
    "program": "true", "argv": ["true"], "env": {}, "cwd": "/", "path": "/usr/bin:/bin",
    "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "tty": False,
}  # fmt: skip


def finish(stub: Stub) -> int:
    while not stub.progress():
        time.sleep(0.005)
    for fd in (stub.stdin, stub.stdout, stub.stderr):
        os.close(fd)
    stub.sock.close()
    return os.waitpid(stub.pid, 0)[1]


def test_a_stub_becomes_what_it_is_told() -> None:
    stub = Stub(CONFIG)
    stub.run(PLAN, {})
    assert finish(stub) == 0
    assert (stub.ready, stub.report) == (True, None)


def test_a_stub_that_cannot_execute_reports_why() -> None:
    stub = Stub(CONFIG)
    stub.run({**PLAN, "program": "no-such"}, {})
    finish(stub)
    assert stub.report == {"failed": "exec", "errno": 2, "path": "no-such"}


def test_a_stub_that_makes_a_mistake_reports_it_too(capfd: pytest.CaptureFixture[str]) -> None:
    """Else its own exit code would be taken for the command's."""
    stub = Stub(CONFIG)
    stub.run({**PLAN, "argv": ["a\0b"]}, {})
    finish(stub)
    assert stub.report
    assert stub.report["failed"] == "start"


def test_a_stub_that_is_killed_while_it_waits_is_not_ready() -> None:
    stub = Stub(CONFIG)
    os.kill(stub.pid, signal.SIGKILL)
    finish(stub)
    assert not stub.ready


def test_a_stub_that_is_killed_before_it_reads_its_plan_is_not_ready() -> None:
    stub = Stub(CONFIG)
    os.kill(stub.pid, signal.SIGSTOP)
    stub.run(PLAN, {})
    os.kill(stub.pid, signal.SIGKILL)
    assert finish(stub) == signal.SIGKILL
    assert not stub.ready


def test_a_stub_ends_with_its_supervisor() -> None:
    stub = Stub(CONFIG)
    stub.sock.close()
    for fd in (stub.stdin, stub.stdout, stub.stderr, *stub.theirs):
        os.close(fd)
    assert os.waitpid(stub.pid, 0)[0] == stub.pid


def test_a_stub_joins_the_commands_cgroup_with_its_plan_and_not_before(tmp_path: Path) -> None:
    """Until then it must have the agent's share: a fork bomb leaves nothing of the sandbox's."""
    joined = os.open(tmp_path / "tasks", os.O_WRONLY | os.O_CREAT)
    stub = Stub(CONFIG._replace(procs=(joined,)))
    time.sleep(0.1)
    assert (tmp_path / "tasks").read_bytes() == b""
    stub.run(PLAN, {})
    assert finish(stub) == 0
    assert (tmp_path / "tasks").read_bytes() == b"0"
    os.close(joined)


def test_a_stub_that_cannot_join_executes_nothing(tmp_path: Path) -> None:
    """Nothing may run without limits."""
    (tmp_path / "tasks").touch()
    closed = os.open(tmp_path / "tasks", os.O_RDONLY)
    stub = Stub(CONFIG._replace(procs=(closed,)))
    stub.run(PLAN, {})
    finish(stub)
    os.close(closed)
    assert stub.report == {"failed": "limits", "errno": 9, "path": ""}
