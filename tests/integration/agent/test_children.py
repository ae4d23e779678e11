"""File operations run in processes of their own."""

import os
import subprocess
import sys

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from integration.agent.client import Client, eventually


def test_a_file_operation_starts_at_the_sessions_directory(agent: Client) -> None:
    agent.call("session.create", id="files", cwd="/usr")
    agent.exec("cd /usr/bin", session="files")
    reply = agent.call("fs.stat", path="env", session="files")
    assert reply["absolutePath"] == "/usr/bin/env"


def test_a_file_operation_is_a_typed_error_when_it_fails(agent: Client) -> None:
    with pytest.raises(errors.FileNotFoundError):
        agent.call("fs.stat", path="/no/such")
    eventually(lambda: agent.call("hello")["protocol"] == 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_file_operation_has_the_rights_of_the_user_it_names(agent: Client) -> None:
    secret = agent.directory / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    agent.directory.chmod(0o711)
    with agent.connect() as connection:
        connection.header(op="fs.read_file", path=str(secret), user="65534:65534")
        with pytest.raises(errors.PermissionDeniedError):
            connection.until(Kind.REPLY)


def test_an_unknown_user_is_a_typed_error(agent: Client) -> None:
    with pytest.raises(errors.ValidationFailedError):
        agent.call("fs.stat", path="/", user="nobody-of-this-name")


def test_a_pipe_that_nobody_writes_holds_up_no_other_call(agent: Client) -> None:
    os.mkfifo(agent.directory / "fifo")
    with agent.connect() as stuck:
        stuck.header(op="fs.read_file", path=str(agent.directory / "fifo"))
        assert agent.call("fs.stat", path="/")["type"] == "directory"
        assert agent.exec("echo ok").stdout == b"ok\n"


_TWICE = """
import socket, sys
from atoll.agent.children import Children
from atoll.agent.config import Config
from atoll.agent.loop import Loop

loop = Loop()
children = Children(loop, Config(confine=False))
for path in "first", "second":
    ours, theirs = socket.socketpair()
    children.start(theirs, {"op": "fs.exists", "path": path, "cwd": "/"}, sys.argv[1])
    assert b'"exists"' in ours.recv(1 << 16)
    while "atoll.agent.files.writing" not in sys.modules:
        loop.step()
    sys.meta_path.clear()  # nothing more can be imported
"""


def test_only_the_first_file_operation_imports_its_program() -> None:
    """That takes longer than a short operation itself."""
    user = f"{os.getuid()}:{os.getgid()}"
    subprocess.run([sys.executable, "-c", _TWICE, user], check=True, timeout=30)
