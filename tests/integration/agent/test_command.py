"""One command, by the real agent over its real socket."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from atoll import errors
from atoll.agent import command as command_module
from atoll.agent import stub
from atoll.agent.command import Command
from atoll.agent.config import Config
from atoll.agent.devices import Devices, open_devices
from atoll.agent.launch import Context
from atoll.agent.loop import Loop
from atoll.agent.output import Output
from atoll.wire.frames import Kind
from integration.agent.client import Client

HERE = Context({}, "/", "/", f"{os.getuid()}:{os.getgid()}", session=False, pending={}, state=None)


@pytest.mark.parametrize(
    ("command", "code"),
    [("false", 1), ("(exit 255)", 255), ("no-such-cmd", 127), ("printf done", 0), ("exit 7", 7)],
)
def test_the_exit_code_comes_from_wait(agent: Client, command: str, code: int) -> None:
    """X23."""
    result = agent.exec(command)
    assert (result.code, result.record["signal"]) == (code, None)


def test_a_signal_is_reported_by_name(agent: Client) -> None:
    """X23, S03."""
    result = agent.exec("kill -KILL $$")
    assert (result.code, result.record["signal"]) == (137, "SIGKILL")
    assert agent.exec("kill -TERM $BASHPID").record["signal"] == "SIGTERM"


def test_stdout_and_stderr_are_apart(agent: Client) -> None:
    result = agent.exec("echo out; echo err >&2")
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")


def test_argv_runs_without_a_shell(agent: Client) -> None:
    assert agent.exec(["printf", "%s|", "$HOME", "a b", ""]).stdout == b"$HOME|a b||"


@pytest.mark.parametrize(
    "command", ["", "  ", [], [""], "a\0b", ["a\0b"], "\ud800", ["a", "\ud800"], 7, [7], None]
)
def test_a_command_that_cannot_run_is_refused(agent: Client, command: object) -> None:
    with pytest.raises(errors.InvalidCommandError):
        agent.exec(command)  # type: ignore[arg-type]


def test_a_megabyte_of_command_text_works(agent: Client) -> None:
    """X20: it is never one argv string."""
    text = "x=$(cat <<'EOF'\n" + "y" * 1_000_000 + "\nEOF\n); echo ${#x}"
    assert agent.exec(text).stdout == b"1000000\n"


def test_a_signal_reaches_the_command(agent: Client) -> None:
    with agent.start("trap 'echo got; exit 5' USR1; echo ready; sleep 30 & wait") as connection:
        connection.until(Kind.STDOUT)
        connection.send(Kind.SIGNAL, b'{"signal":"SIGUSR1"}')
        result = connection.result()
    assert (result.stdout, result.code) == (b"got\n", 5)


def test_thousands_of_orphans_leave_no_zombie(agent: Client) -> None:
    """X24: and no exit code is taken from the command by reaping them."""
    result = agent.exec("for i in $(seq 500); do (sleep 0.01 &); done; sleep 0.3; exit 9")
    assert result.code == 9
    stats = [Path(f"/proc/{pid}/stat") for pid in os.listdir("/proc") if pid.isdecimal()]
    parents = {str(agent.pid)}
    found = []
    for stat in stats:
        if stat.exists():
            fields = stat.read_text().rpartition(")")[2].split()
            found += [stat] if fields[0] == "Z" and fields[1] in parents else []
    assert not found


class Alone:
    """A command of this process, without agent."""

    def __init__(self, devices: Devices) -> None:
        self.loop = Loop()
        self.outcomes: list[Any] = []
        self.command = Command(
            self.loop,
            Config(confine=False, devices=devices),
            Output(lambda *_: None),
            on_started=lambda _: None,
            on_outcome=lambda outcome, _: self.outcomes.append(outcome),
            on_childless=lambda: None,
            on_room=lambda: None,
        )

    def run(self, **header: Any) -> Any:
        """Return the only outcome, within 5 s."""
        self.command.accept({"command": ["true"], **header})
        self.command.begin(HERE)
        end = time.monotonic() + 5
        while not self.outcomes and time.monotonic() < end:
            self.loop.later(0.05, lambda: None)
            self.loop.step()
        (outcome,) = self.outcomes
        return outcome


@pytest.fixture
def devices() -> Iterator[Devices]:
    opened = open_devices()
    yield opened
    for fd in opened:
        os.close(fd)


@pytest.fixture
def alone(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> Iterator[Alone]:
    handler = signal.getsignal(signal.SIGCHLD)
    monkeypatch.setattr(stub.os, "chdir", lambda _: time.sleep(60))
    made = Alone(devices)
    yield made
    made.command.close()
    made.loop.close()
    signal.signal(signal.SIGCHLD, handler)
    with suppress(ChildProcessError):
        os.waitpid(-1, 0)


def test_a_directory_that_hangs_is_timed_out_too(alone: Alone) -> None:
    """It may be on a mount whose server has gone: the time counts from the request on."""
    record = alone.run(timeout=0.2)
    assert (record["timed_out"], record["signal"]) == (True, "SIGTERM")


@pytest.mark.parametrize("failure", [OSError(24, "Too many open files"), ValueError("odd")])
def test_whatever_goes_wrong_at_the_start_is_an_outcome(
    alone: Alone, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(command_module.users, "read", fail)
    assert isinstance(alone.run(), errors.InternalError)


def test_a_start_that_fails_halfway_leaves_nothing_running(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(alone.command, "_watch_stub", fail)
    monkeypatch.setattr(command_module.launch.Plan, "close", fail)
    assert isinstance(alone.run(), errors.InternalError)
    while not alone.command.idle:
        alone.loop.step()
