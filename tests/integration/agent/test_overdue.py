"""Time limits hold, whatever root inside does to those who keep them."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from integration.agent.client import Client, attach, collect, eventually, parent

STOPPER = """
import os, signal, time
supervisor, end = os.getppid(), time.monotonic() + 30
while time.monotonic() < end:
    os.kill(supervisor, signal.SIGSTOP)
"""


@contextmanager
def stopped_for_ever(pid: int) -> Iterator[None]:
    stopper = subprocess.Popen(
        [sys.executable, "-c", STOPPER.replace("os.getppid()", str(pid))],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        stopper.kill()
        stopper.wait()


def test_a_supervisor_that_is_stopped_for_ever_is_ended_with_its_command(agent: Client) -> None:
    """The router's clock cannot be stopped: the outcome is typed, the session goes on."""
    began = time.monotonic()
    command = f"exec python3 -c '{STOPPER}'"
    with agent.start(command, id="held", session="default", timeout=0.5) as connection:
        found = list(connection)
    if not found or found[-1].kind != Kind.EXITED:  # its supervisor had no time to tell
        with (
            attach(agent, "held") as connection,
            pytest.raises(errors.TimeoutError, match="within 0"),
        ):
            collect(list(connection))
    assert time.monotonic() - began < 6
    assert agent.exec("echo on", session="default").stdout == b"on\n"


def test_a_supervisor_that_does_nothing_is_ended_after_the_deadline(agent: Client) -> None:
    """Stopped again as soon as it goes on: with the command gone or not, its caller hears."""
    with agent.start("echo $$; exec sleep 60", id="frozen", timeout=0.3) as connection:
        supervisor = parent(int(connection.until(Kind.STDOUT).payload[16:]))
        with stopped_for_ever(supervisor):
            began = time.monotonic()
            list(connection)
            assert time.monotonic() - began < 6
    eventually(lambda: agent.exec("echo on").stdout == b"on\n")


def test_a_command_in_time_meets_no_deadline(agent: Client) -> None:
    result = agent.exec("trap '' TERM; sleep 60", timeout=0.2)
    assert result.record["timed_out"]
    assert result.record["duration"] < 2
