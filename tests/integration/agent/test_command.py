"""One command, by the real agent over its real socket."""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from integration.agent.client import Client, alive, eventually


def test_output_is_byte_exact(agent: Client) -> None:
    """X11, X13: the last newline, NUL, invalid UTF-8 and CR stay."""
    result = agent.exec(r"printf 'a\0\377\376\r\n\n\nx'")
    assert result.stdout == b"a\0\xff\xfe\r\n\n\nx"


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


def test_a_missing_program_is_a_typed_error(agent: Client) -> None:
    with pytest.raises(errors.CommandNotFoundError, match="no-such-program"):
        agent.exec(["no-such-program"])


def test_a_file_that_is_not_executable_is_a_typed_error(agent: Client) -> None:
    plain = agent.directory / "plain"
    plain.write_text("text")
    with pytest.raises(errors.CommandPermissionDeniedError):
        agent.exec([str(plain)])


@pytest.mark.parametrize("command", ["", "  ", [], [""], "a\0b", ["a\0b"], 7, [7], None])
def test_a_command_that_cannot_run_is_refused(agent: Client, command: object) -> None:
    with pytest.raises(errors.InvalidCommandError):
        agent.exec(command)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["pwd", ["pwd"]])
def test_a_missing_directory_is_a_typed_error(agent: Client, command: str | list[str]) -> None:
    with pytest.raises(errors.FileNotFoundError) as caught:
        agent.exec(command, cwd="/no/such/place")
    assert caught.value.context["path"] == "/no/such/place"


def test_cwd_is_relative_to_the_workdir(agent: Client) -> None:
    (agent.directory / "workspace" / "below").mkdir()
    assert agent.exec("pwd", cwd="below").stdout == f"{agent.directory}/workspace/below\n".encode()


def test_env_is_exact_and_gone_afterwards(agent: Client) -> None:
    """X21: newlines, quotes, 100 KB; None unsets; the next command sees nothing of it."""
    value = "l1\nl2 'q\" " + "x" * 100_000
    env = {"K": value, "PATH": "/usr/bin:/bin", "HOME": None}
    assert agent.exec('printf %s "$K${HOME-unset}"', env=env).stdout == f"{value}unset".encode()
    assert agent.exec("printf %s ${K-none}").stdout == b"none"


def test_nothing_of_the_agent_leaks_into_a_command(agent: Client) -> None:
    """Probe 2: environment, descriptors, ignored signals."""
    names = {line.partition(b"=")[0] for line in agent.exec(["env", "-0"]).stdout.split(b"\0")}
    assert names - {b""} == {b"PATH", b"HOME", b"USER", b"LOGNAME"}
    assert agent.exec(["ls", "/proc/self/fd"]).stdout.split() == [b"0", b"1", b"2", b"3"]
    ignored = agent.exec(["grep", "-E", "^(SigIgn|SigBlk)", "/proc/self/status"]).stdout
    assert ignored.split()[1::2] == [b"0" * 16, b"0" * 16]


def test_stdin_is_empty_unless_given(agent: Client) -> None:
    """X19."""
    assert agent.exec("cat; read x; echo $?").stdout == b"1\n"
    assert agent.exec(["cat"], stdin=b"one\ntwo").stdout == b"one\ntwo"


def test_five_megabytes_of_stdin_come_through(agent: Client) -> None:
    """X20."""
    data = os.urandom(5 << 20)
    result = agent.exec(["sha256sum"], stdin=data)
    assert result.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_a_command_that_reads_nothing_does_not_hold_up_its_caller(agent: Client) -> None:
    assert agent.exec(["true"], stdin=b"x" * (3 << 20)).code == 0


def test_a_megabyte_of_command_text_works(agent: Client) -> None:
    """X20: it is never one argv string."""
    text = "x=$(cat <<'EOF'\n" + "y" * 1_000_000 + "\nEOF\n); echo ${#x}"
    assert agent.exec(text).stdout == b"1000000\n"


@pytest.mark.parametrize("count", [20_000, 50_000])
def test_every_byte_comes_before_the_exit(agent: Client, count: int) -> None:
    """S01."""
    want = "".join(f"{n}\n" for n in range(1, count + 1)).encode()
    for _ in range(5):
        result = agent.exec(["seq", str(count)])
        assert result.stdout == want
        assert result.frames[-1].kind == Kind.EXITED


def test_fifty_megabytes_flow(agent: Client) -> None:
    """X16: on one line, on stderr."""
    result = agent.exec("head -c 50000000 /dev/zero >&2")
    assert len(result.stderr) == result.record["stderr_bytes"] == 50_000_000


def test_a_limit_cuts_each_stream_and_counts_the_rest(agent: Client) -> None:
    """X16."""
    result = agent.exec("seq 100000; echo err >&2", output_limit=1000)
    assert len(result.stdout) == 1000
    assert result.stderr == b"err\n"
    assert result.record["truncated"]
    assert result.record["stdout_bytes"] == 588_895


def test_a_slow_reader_loses_nothing(agent: Client) -> None:
    """What the command wrote before it ended is owed, however long the caller takes."""
    with agent.start("seq 300000; (sleep 30 >/dev/null &)") as connection:
        time.sleep(1.0)
        assert connection.result().stdout.endswith(b"\n300000\n")


def test_a_background_child_does_not_hold_the_result(agent: Client) -> None:
    """X18: the call returns, the child lives on."""
    began = time.monotonic()
    result = agent.exec("sleep 30 & echo $!")
    assert time.monotonic() - began < 5
    pid = int(result.stdout)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_background_child_may_write_on_after_the_exit(agent: Client) -> None:
    """Late output is dropped, but it neither blocks nor ends who writes it."""
    done = agent.directory / "done"
    agent.exec(f"(sleep 0.5; seq 100000; touch {done}) & true")
    eventually(done.exists)


def test_a_timeout_ends_the_whole_tree(agent: Client) -> None:
    """X07, S04: also what left its session, forked twice, or ignores TERM."""
    late = agent.directory / "late"
    text = f"""trap '' TERM
    echo partial
    setsid bash -c "trap '' TERM; sleep 3; touch {late}" &
    (bash -c "trap '' TERM; sleep 3; touch {late}" &)
    sleep 3; touch {late}"""
    result = agent.exec(text, timeout=0.3)
    assert result.record["timed_out"]
    assert result.stdout == b"partial\n"
    assert agent.exec("echo ok").stdout == b"ok\n"
    assert agent.exec(f"pgrep -fc 'touch {late}$'").stdout == b"0\n"


def test_a_timeout_lets_a_command_say_goodbye(agent: Client) -> None:
    result = agent.exec("trap 'echo bye; exit 3' TERM; sleep 30 & wait", timeout=0.3)
    assert (result.stdout, result.code, result.record["timed_out"]) == (b"bye\n", 3, True)


def test_cancel_ends_the_tree_within_a_second(agent: Client) -> None:
    """X08."""
    with agent.start("trap '' TERM; sleep 600 & echo $!; sleep 600; sleep 600") as connection:
        pid = int(connection.until(Kind.STDOUT).payload[16:])
        began = time.monotonic()
        connection.send(Kind.CANCEL)
        result = connection.result()
    assert result.record["cancelled"]
    assert time.monotonic() - began < 5
    assert not alive(pid)


def test_a_signal_reaches_the_command(agent: Client) -> None:
    with agent.start("trap 'echo got; exit 5' USR1; echo ready; sleep 30 & wait") as connection:
        connection.until(Kind.STDOUT)
        connection.send(Kind.SIGNAL, b'{"signal":"SIGUSR1"}')
        result = connection.result()
    assert (result.stdout, result.code) == (b"got\n", 5)


def test_chunks_arrive_when_they_are_written(agent: Client) -> None:
    """S05, S06: no line buffering, nothing changed."""
    with agent.start("printf 10%%; sleep 0.5; printf '\\r20%%'") as connection:
        began = time.monotonic()
        assert connection.until(Kind.STDOUT).payload[16:] == b"10%"
        assert time.monotonic() - began < 0.45
        assert connection.result().stdout == b"\r20%"


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


def test_the_users_reading_end_may_go_first(agent: Client) -> None:
    """SIGPIPE has its default: the agent's own setting would make `yes` complain for ever."""
    assert agent.exec("yes | head -1; echo ${PIPESTATUS[0]}").stdout == b"y\n141\n"


def test_a_python_program_gets_eof_and_its_own_streams(agent: Client) -> None:
    result = agent.exec([sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"])
    assert result.stdout == b"''\n"
