"""Supervisors that are killed."""

import os
import signal

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from integration.agent.client import Client, alive, attach, collect, eventually, parent


def test_a_killed_supervisor_is_an_error_and_never_a_code(agent: Client) -> None:
    """Root inside may kill it: the outcome is not known, and nothing of the command is left."""
    with agent.start("sleep 600 & echo $$ $!; wait", id="murdered") as connection:
        shell, child = map(int, connection.until(Kind.STDOUT).payload[16:].split())
        os.kill(parent(shell), 9)
        assert connection.frame() is None
    eventually(lambda: not alive(shell) and not alive(child))
    with attach(agent, "murdered") as connection:
        found = list(connection)
    with pytest.raises(errors.CommandExecutionError, match="not known"):
        collect(found)
    assert agent.exec("echo next").stdout == b"next\n"


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return list(map(int, file.read().split()))


def rest(agent: Client) -> int:
    """Wait until one supervisor and its stub are ready and nothing else is there; return it."""

    def rested() -> bool:
        found = children(agent.pid)
        return len(found) == 1 and len(children(found[0])) == 1

    agent.exec(["true"])
    eventually(rested)
    return children(agent.pid)[0]


def test_one_supervisor_and_its_stub_are_ready_when_nothing_runs(agent: Client) -> None:
    for _ in range(5):
        agent.exec(["true"])
    assert rest(agent)


def test_calls_one_after_the_other_share_supervisors(agent: Client) -> None:
    rest(agent)
    text = "ps -o ppid= $$"
    assert len({agent.exec(text).stdout for _ in range(20)}) < 10


def test_nothing_of_a_command_is_left_to_the_next_of_its_supervisor(agent: Client) -> None:
    rest(agent)
    before = len(os.listdir(f"/proc/{rest(agent)}/fd"))
    for _ in range(5):
        agent.exec("echo out; cat; echo err >&2", stdin=b"in", session="default", env={"S": "1"})
        assert agent.exec("echo ${S-none}", pty=True).stdout == b"none\r\n"
    assert len(os.listdir(f"/proc/{rest(agent)}/fd")) == before


def test_a_supervisor_that_has_grown_takes_no_other_command(agent: Client) -> None:
    ready = rest(agent)
    agent.exec(["head", "-c", "20000000", "/dev/zero"])
    eventually(lambda: not alive(ready))


def test_a_killed_ready_supervisor_is_replaced(agent: Client) -> None:
    ready = rest(agent)
    os.kill(ready, 9)
    eventually(lambda: not alive(ready))
    assert agent.exec("echo ok").stdout == b"ok\n"


def test_a_killed_ready_stub_is_replaced(agent: Client) -> None:
    """The kernel may take it when the sandbox's memory is full."""
    ready = rest(agent)
    (stub,) = children(ready)
    os.kill(stub, 9)
    eventually(lambda: not children(ready))
    assert agent.exec("echo ok").stdout == b"ok\n"


def test_a_stopped_supervisor_goes_on_when_it_is_needed(agent: Client) -> None:
    os.kill(rest(agent), 19)
    assert agent.exec("echo ok").stdout == b"ok\n"


@pytest.mark.parametrize("number", ["STOP", "TSTP"])
def test_a_stopped_supervisor_goes_on(agent: Client, number: str) -> None:
    """Root inside can stop it, and nobody else would wake it up."""
    result = agent.exec(f"kill -{number} $PPID; sleep 0.1; echo on; exit 3")
    assert (result.stdout, result.code) == (b"on\n", 3)


def test_a_waiting_stub_that_was_stopped_still_becomes_a_command(agent: Client) -> None:
    stub = children(rest(agent))[0]
    os.kill(stub, signal.SIGSTOP)
    assert agent.exec(["echo", "on"]).stdout == b"on\n"


def test_a_command_that_stops_itself_stays_stopped(agent: Client) -> None:
    with agent.start("kill -STOP $$; echo on", timeout=0.5) as connection:
        assert connection.result().stdout == b""
    text = "(kill -STOP $$; sleep 0.1; kill -CONT $$) & wait; echo on"
    assert agent.exec(text).stdout == b"on\n"
