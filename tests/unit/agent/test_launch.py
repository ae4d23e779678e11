import errno
import os

import pytest

from atoll import errors
from atoll.agent import launch
from atoll.agent.launch import Context, Plan, failure, plan
from atoll.agent.users import User

USER = User(0, 0, (0,), "root", "/root", "")
CONTEXT = Context({"A": "1"}, "/work", "/work/here", "0", session=False, pending={}, state=None)


def test_argv_is_taken_as_it_is() -> None:
    made = plan({"command": ["ls", "-l"], "env": {"A": None, "B": "2"}}, CONTEXT, USER, 1)
    assert (made.program, made.argv, made.files, made.dump) == ("ls", ["ls", "-l"], {}, None)
    assert "A" not in made.env
    assert made.env["B"] == "2"


def test_argv_starts_where_the_sessions_shell_is() -> None:
    assert plan({"command": ["ls"]}, CONTEXT, USER, 1).cwd == "/work/here"
    assert plan({"command": ["ls"], "cwd": "x"}, CONTEXT, USER, 1).cwd == "/work/here/x"


def test_text_without_a_session_has_no_state() -> None:
    made = plan({"command": "ls"}, CONTEXT, USER, 1)
    assert (made.cwd, made.dump) == ("/work", None)
    assert made.outcome(b"", 0).state is None
    made.close()


def test_text_in_a_session_dumps_its_state_into_a_pipe_whose_reading_end_is_kept() -> None:
    made = plan({"command": "ls"}, CONTEXT._replace(session=True), USER, 1)
    made.close()
    assert made.dump is not None
    assert os.read(made.dump, 1) == b""
    assert made.outcome(b"", None).session_ended
    os.close(made.dump)


def test_text_never_becomes_a_long_argument() -> None:
    made = plan({"command": "x" * 1_000_000}, CONTEXT._replace(session=True), USER, 1)
    assert max(map(len, made.argv)) < 100_001
    made.close()


def test_an_image_without_a_shell_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "SHELLS", ("/no/such/bash",))
    with pytest.raises(errors.CommandExecutionError) as caught:
        plan({"command": "ls"}, CONTEXT, USER, 1)
    assert "list" in str(caught.value.suggestion)


@pytest.mark.parametrize(
    ("stage", "number", "kind"),
    [
        ("cwd", errno.ENOENT, errors.FileNotFoundError),
        ("cwd", errno.ENOTDIR, errors.NotDirectoryError),
        ("cwd", errno.EACCES, errors.PermissionDeniedError),
        ("exec", errno.ENOENT, errors.CommandNotFoundError),
        ("exec", errno.ENOTDIR, errors.CommandNotFoundError),
        ("exec", errno.EACCES, errors.CommandPermissionDeniedError),
        ("exec", errno.ENOEXEC, errors.CommandExecutionError),
        ("exec", errno.E2BIG, errors.InvalidCommandError),
        ("user", errno.EINVAL, errors.NotSupportedByRuntimeError),
        ("user", errno.EAGAIN, errors.CommandExecutionError),
        ("start", 0, errors.CommandExecutionError),
    ],
)
def test_every_failed_start_is_a_typed_error(
    stage: str, number: int, kind: type[errors.SandboxError]
) -> None:
    error = failure({"failed": stage, "errno": number, "path": "/p"}, ["cmd"])
    assert type(error) is kind


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.E2BIG, errno.ENAMETOOLONG])
def test_a_command_that_is_too_long_to_run_is_not_too_long_to_tell(number: int) -> None:
    error = failure({"failed": "exec", "errno": number, "path": "/p"}, ["x" * 200_000])
    assert len(str(error.to_wire())) < 2_000


def test_the_plans_message_names_user_and_path() -> None:
    made = Plan("ls", ["ls"], {"PATH": "/p"}, "/", {})
    message = made.message(USER, tty=True)
    assert (message["uid"], message["path"], message["tty"]) == (0, "/p", True)
