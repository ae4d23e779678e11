"""Supervisors that are killed."""

import os

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


def test_a_supervisor_and_its_stub_are_ready_before_they_are_needed(agent: Client) -> None:
    agent.exec(["true"])
    eventually(lambda: len(children(agent.pid)) == 1 and children(children(agent.pid)[0]))


def test_a_killed_ready_supervisor_is_replaced(agent: Client) -> None:
    agent.exec(["true"])
    eventually(lambda: len(children(agent.pid)) == 1)
    (ready,) = children(agent.pid)
    os.kill(ready, 9)
    eventually(lambda: not alive(ready))
    assert agent.exec("echo ok").stdout == b"ok\n"


def test_a_killed_ready_stub_is_replaced(agent: Client) -> None:
    """The kernel may take it when the sandbox's memory is full."""
    agent.exec(["true"])
    eventually(lambda: len(children(agent.pid)) == 1 and children(children(agent.pid)[0]))
    (stub,) = children(children(agent.pid)[0])
    os.kill(stub, 9)
    eventually(lambda: not children(children(agent.pid)[0]))
    assert agent.exec("echo ok").stdout == b"ok\n"


def test_a_stopped_supervisor_goes_on_when_it_is_needed(agent: Client) -> None:
    agent.exec(["true"])
    eventually(lambda: len(children(agent.pid)) == 1)
    os.kill(children(agent.pid)[0], 19)
    assert agent.exec("echo ok").stdout == b"ok\n"
