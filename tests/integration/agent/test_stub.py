"""What a command finds when it begins, and why one may not begin."""

import os

import pytest

from atoll import errors
from integration.agent.client import Client


def test_a_missing_program_is_a_typed_error(agent: Client) -> None:
    with pytest.raises(errors.CommandNotFoundError, match="no-such-program"):
        agent.exec(["no-such-program"])


def test_a_file_that_is_not_executable_is_a_typed_error(agent: Client) -> None:
    plain = agent.directory / "plain"
    plain.write_text("text")
    with pytest.raises(errors.CommandPermissionDeniedError):
        agent.exec([str(plain)])


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


def test_the_users_reading_end_may_go_first(agent: Client) -> None:
    """SIGPIPE has its default: the agent's own setting would make `yes` complain for ever."""
    assert agent.exec("yes | head -1; echo ${PIPESTATUS[0]}").stdout == b"y\n141\n"


def test_the_path_is_the_commands_own(agent: Client) -> None:
    """A file that may not be executed hides none that may, as in a shell."""
    for name, mode in [("first", 0o644), ("second", 0o755)]:
        (agent.directory / name).mkdir()
        (agent.directory / name / "tool").write_text("#!/bin/sh\necho $0\n")
        (agent.directory / name / "tool").chmod(mode)
    path = f"{agent.directory}/first:{agent.directory}/second"
    assert agent.exec(["tool"], env={"PATH": path}).stdout.rstrip().endswith(b"second/tool")
    with pytest.raises(errors.CommandPermissionDeniedError):
        agent.exec(["tool"], env={"PATH": path.partition(":")[0]})


def test_a_script_without_an_interpreter_line_is_a_typed_error(agent: Client) -> None:
    text = agent.directory / "script"
    text.write_text("echo hi\n")
    text.chmod(0o755)
    with pytest.raises(errors.CommandExecutionError, match="format"):
        agent.exec([str(text)])


def test_an_environment_the_kernel_does_not_take_is_a_typed_error(agent: Client) -> None:
    with pytest.raises(errors.InvalidCommandError, match="list too long"):
        agent.exec(["true"], env={"A": "x" * 200_000})


def test_limits_and_mask_are_those_of_a_container(agent: Client) -> None:
    text = (
        "umask; ulimit -c; [ $(ulimit -n) -ge 1024 ]; cat /proc/self/oom_score_adj; ps -o sid= $$"
    )
    mask, core, score, session = agent.exec(text).stdout.split()
    assert (mask, core, score) == (b"0022", b"0", b"500")
    assert int(session) != os.getsid(agent.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_command_runs_as_the_user_it_names(agent: Client) -> None:
    agent.directory.chmod(0o711)
    for command in ("id -u; id -g; id -G", ["sh", "-c", "id -u; id -g; id -G"]):
        assert agent.exec(command, user="4242:17").stdout == b"4242\n17\n17\n"
    assert agent.exec("id -un; echo $HOME", user="nobody").stdout == b"nobody\n/nonexistent\n"
    agent.call("session.create", id="other", user="4242", cwd="/")
    agent.exec("x=1", session="other")
    assert agent.exec("id -u; echo $x", session="other").stdout == b"4242\n1\n"
    with pytest.raises(errors.ValidationFailedError):
        agent.exec("true", user="nobody-of-this-name")
