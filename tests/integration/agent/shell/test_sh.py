"""Sessions where there is no bash: dash and BusyBox."""

import os
import shutil
from pathlib import Path

import pytest

from atoll.agent.shell import launching
from integration.agent.shell_runner import ENV, Shell, execute


@pytest.fixture(params=["dash", "busybox"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"no {request.param} here")
    link = tmp_path / "sh"
    os.symlink(program, link)
    return Shell(str(tmp_path), program=str(link))


def test_directory_environment_and_umask_are_carried(session: Shell) -> None:
    session.run('cd /usr; export A="it\'s\n\\two"; unset HOME; umask 027; local=1')
    ran = session.run('pwd; printf "%s|" "$A" "${HOME-unset}" "$OLDPWD" "$local"; umask')
    assert ran.stdout == f"/usr\nit's\n\\two|unset|{session.cwd}||0027\n".encode()


def test_a_syntax_error_keeps_the_session(session: Shell) -> None:
    session.run("cd /usr")
    ran = session.run("echo 'open")
    assert (ran.status, ran.outcome.session_ended) == (2, False)
    assert session.run("pwd").stdout == b"/usr\n"


@pytest.mark.parametrize(
    ("text", "status"), [("exit 3", 3), ("exec true", 0), ("set -e; false", 1)]
)
def test_a_text_that_ends_its_shell_ends_the_session(
    session: Shell, text: str, status: int
) -> None:
    ran = session.run(f"cd /usr; {text}")
    assert (ran.status, ran.outcome.session_ended) == (status, True)
    assert session.run("pwd").stdout == f"{session.cwd}\n".encode()


def test_functions_and_tracing_of_the_user_do_not_meet_ours(session: Shell) -> None:
    ran = session.run("printf() { :; }; pwd() { :; }; umask() { :; }; cd /etc; set -x; echo hi")
    assert (ran.stdout, ran.stderr) == (b"hi\n", b"+ echo hi\n")
    assert session.run("pwd").stdout == b"/etc\n"


def test_variables_for_one_command_are_gone_afterwards(session: Shell) -> None:
    session.run("export A=mine")
    changes = {"A": "lent", "B": "b", "HOME": None}
    assert session.run('echo "$A$B${HOME-unset}"', changes=changes).stdout == b"lentbunset\n"
    assert session.run('echo "$A${B-unset}$HOME"').stdout == b"mineunset/root\n"


def test_standard_input_belongs_to_the_text(session: Shell) -> None:
    assert session.run("read a; cat", stdin=b"1\n2\n").stdout == b"2\n"


def test_a_long_text_without_a_session_runs(session: Shell) -> None:
    text = "echo first\nexit 4 #" + "x" * 200_000
    launch = launching.prepare_alone(text, program=session.program, env=ENV, cwd="/tmp")
    stdout, _, _, status = execute(launch)
    assert (stdout, status) == (b"first\n", 4)
