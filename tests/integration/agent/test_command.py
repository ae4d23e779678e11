"""One command, by the real agent over its real socket."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from integration.agent.client import Client


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
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = stat.read_text().rpartition(")")[2].split()
            found += [stat] if fields[0] == "Z" and fields[1] in parents else []
    assert not found
