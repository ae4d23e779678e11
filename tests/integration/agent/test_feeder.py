"""Standard input."""

import hashlib
import os
import sys

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from integration.agent.client import (
    Client,
    control,
)


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


def test_control_feeds_standard_input(agent: Client) -> None:
    """X19: interactive input from other connections than the one that reads."""
    with agent.start("read a; read b; echo $b $a", id="fed", stdin=True) as connection:
        control(agent, "fed", (Kind.STDIN, b"one\n"))
        control(agent, "fed", (Kind.STDIN, b"two\n"), (Kind.STDIN_CLOSE, b""))
        assert connection.result().stdout == b"two one\n"
    assert control(agent, "fed", (Kind.STDIN, b"late")) == {"running": False}


def test_input_for_a_command_without_any_is_refused(agent: Client) -> None:
    with agent.start("sleep 30", id="unfed", cancel_on_drop=True) as connection:
        connection.until(Kind.STARTED)
        with pytest.raises(errors.ValidationFailedError):
            control(agent, "unfed", (Kind.STDIN, b"x"))


def test_a_python_program_gets_eof_and_its_own_streams(agent: Client) -> None:
    result = agent.exec([sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"])
    assert result.stdout == b"''\n"


def test_who_feeds_a_command_that_ends_is_told(agent: Client) -> None:
    with agent.start("read a", id="short", stdin=True) as connection, agent.connect() as feeding:
        feeding.header(op="control", id="short")
        feeding.send(Kind.STDIN, b"one\n")
        assert connection.result().code == 0
        assert feeding.until(Kind.REPLY).payload == b'{"running":false}'
