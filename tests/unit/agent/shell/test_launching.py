"""What is decided about a launch and its end, without running anything."""

from typing import Any

import pytest

from atoll.agent.shell import launching
from atoll.agent.shell.launching import Launch, State, empty_state
from atoll.agent.shell.scripts import DUMP_FD, SCRIPT_FD, SINK_FD, TRACED_FD
from atoll.errors import InternalError, InvalidCommandError

BASH = "/bin/bash"


def prepare(command: str, state: State | None = None, **changes: Any) -> Launch:
    options: dict[str, Any] = {"program": BASH, "env": {"A": "1"}, "cwd": "/tmp"}
    return launching.prepare(command, state, **(options | changes))


@pytest.mark.parametrize("program", [BASH, "/bin/sh"])
def test_a_nul_byte_is_refused(program: str) -> None:
    with pytest.raises(InvalidCommandError):
        prepare("a\0b", program=program)
    with pytest.raises(InvalidCommandError):
        launching.prepare_alone("a\0b", program=program, env={}, cwd="/")


def test_neither_text_nor_state_is_an_argument() -> None:
    state = empty_state("/tmp")
    state["variables"] = {"secret": ("", "hidden")}
    launch = prepare("echo visible", state)
    assert "visible" not in str(launch.argv)
    assert "hidden" not in str((launch.argv, launch.env))
    assert (set(launch.files), launch.dump_fd, launch.sink_fd) == ({SCRIPT_FD}, DUMP_FD, SINK_FD)


@pytest.mark.parametrize("variables", [{"x;id": ("", "1")}, {"x": 1}, []])
def test_a_damaged_state_is_a_typed_error(variables: Any) -> None:
    state = empty_state("/tmp")
    state["variables"] = variables
    with pytest.raises(InternalError):
        prepare("true", state)


def test_names_of_our_variables_are_different_in_every_launch() -> None:
    assert prepare("true").name != prepare("true").name


def test_what_acts_on_a_starting_shell_is_given_to_it_later() -> None:
    env = {"BASH_ENV": "/f", "SHELLOPTS": "xtrace", "POSIXLY_CORRECT": "y", "LANG": "C"}
    launch = prepare("true", env=env)
    assert launch.env == {"LANG": "C", "PWD": "/tmp"}
    assert b"declare -x POSIXLY_CORRECT=y" in launch.files[SCRIPT_FD]
    assert b"builtin . /f" in launch.files[SCRIPT_FD]
    assert b"builtin . /f" not in prepare("true", empty_state("/"), env=env).files[SCRIPT_FD]


@pytest.mark.parametrize(
    ("text", "traced"),
    [
        ("set -x; echo", True),
        ("set -eux\necho", True),
        ("set -o xtrace", True),
        ("echo", False),
        ("set -xv", False),
        ("set -x; alias a=b", False),
        ("set -x; cat <<X\nX", False),
        ("set -x #" + "y" * 200_000, False),
    ],
)
def test_only_texts_that_may_trace_and_cannot_touch_the_dump_are_passed_as_an_argument(
    text: str, traced: bool
) -> None:
    launch = prepare(text)
    assert (TRACED_FD in launch.files) == traced
    assert launch.argv[2].startswith(text) == traced


@pytest.mark.parametrize(
    ("text", "exit_code", "ended"),
    [
        ("exit", 0, True),
        ("true", 0, True),
        ("true", None, True),
        ("set -n", 0, False),
        ("set -en", 0, False),
        ("set -o noexec; exit 1", 0, False),
        ("set -n", 3, True),
        ("echo ${a[08]}", 1, False),
        ("exit 1", 1, True),
        ("set -e; false", 1, True),
        (". ./script", 1, True),
    ],
)
def test_a_shell_without_a_dump_ended_unless_it_was_only_stopped(
    text: str, exit_code: int | None, ended: bool
) -> None:
    before = empty_state("/tmp")
    outcome = launching.conclude(prepare(text, before), b"", exit_code)
    assert outcome == (ended, False, None if ended else before)


def test_functions_and_options_of_the_session_may_end_its_shell_too() -> None:
    state = empty_state("/tmp")
    state["functions"] = ["die () \n{ \n    exit 1\n}"]
    assert launching.conclude(prepare("die", state), b"", 1).session_ended
    state = empty_state("/tmp")
    state["options"] = {"errexit": True}
    assert launching.conclude(prepare("false", state), b"", 1).session_ended


def test_a_dump_that_is_damaged_or_too_large_keeps_the_earlier_state() -> None:
    before = empty_state("/tmp")
    for dump in (b"rubbish\0end\0", b"x" * (launching.STATE_LIMIT + 1)):
        assert launching.conclude(prepare("true", before), dump, 0) == (False, False, before)


def test_a_plain_shell_gets_what_it_understands() -> None:
    launch = prepare("echo hi", program="/bin/sh")
    assert (launch.argv, launch.dump_fd, launch.sink_fd) == (
        ["sh", "-c", ". /proc/self/fd/3"],
        9,
        None,
    )
    assert b"command eval 'echo hi'" in launch.files[SCRIPT_FD]


@pytest.mark.parametrize("program", [BASH, "/bin/sh"])
def test_a_text_alone_is_an_argument_unless_it_is_too_long(program: str) -> None:
    short = launching.prepare_alone("echo hi", program=program, env={"A": "1"}, cwd="/")
    assert (short.argv[1:], short.files, short.dump_fd) == (["-c", "echo hi"], {}, None)
    long = launching.prepare_alone("#" * 200_000, program=program, env={}, cwd="/")
    assert len(long.argv[2]) < 200
    assert len(long.files[SCRIPT_FD]) > 200_000
