"""Runs a launch the way a supervisor does, with real descriptors and no more."""

import fcntl
import os
import selectors
import signal
from collections.abc import Mapping
from typing import NamedTuple

from atoll.agent.shell import launching
from atoll.agent.shell.launching import Launch, Outcome, State

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
BASH = "/bin/bash"


class Ran(NamedTuple):
    """What a command did."""

    stdout: bytes
    stderr: bytes
    status: int
    outcome: Outcome


class Shell:
    """A session: runs texts one after another."""

    def __init__(self, cwd: str, env: Mapping[str, str] | None = None, program: str = BASH) -> None:
        self.state: State | None = None
        self.cwd, self.env, self.program = cwd, dict(env or ENV), program

    def run(
        self,
        text: str,
        *,
        stdin: bytes = b"",
        changes: Mapping[str, str | None] | None = None,
        elsewhere: str | None = None,
    ) -> Ran:
        launch = launching.prepare(
            text,
            self.state,
            program=self.program,
            env=self.env,
            cwd=self.cwd,
            changes=changes,
            elsewhere=elsewhere,
        )
        stdout, stderr, dump, status = execute(launch, stdin)
        outcome = launching.conclude(launch, dump, status if status >= 0 else None)
        self.state = outcome.state
        return Ran(stdout, stderr, status, outcome)


def execute(launch: Launch, stdin: bytes = b"") -> tuple[bytes, bytes, bytes, int]:
    """Return stdout, stderr, dump and status (negative: signal) of a launch."""
    fds = {0: _file(stdin)}
    pipes = [os.pipe() for _ in range(3)]
    fds[1], fds[2] = pipes[0][1], pipes[1][1]
    if launch.dump_fd is not None:
        fds[launch.dump_fd] = pipes[2][1]
    if launch.sink_fd is not None:
        fds[launch.sink_fd] = os.open("/dev/null", os.O_WRONLY)
    fds |= {number: _file(content) for number, content in launch.files.items()}
    pid = os.fork()
    if not pid:
        _become(launch, fds)
    for fd in {*fds.values(), pipes[2][1]}:
        os.close(fd)
    stdout, stderr, dump = _read_all([read for read, _ in pipes])
    _, status = os.waitpid(pid, 0)
    return stdout, stderr, dump, os.waitstatus_to_exitcode(status)


def _file(content: bytes) -> int:
    fd = os.memfd_create("content")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _become(launch: Launch, fds: Mapping[int, int]) -> None:
    try:
        parked = {number: fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for number, fd in fds.items()}
        os.closerange(0, 100)
        for number, fd in parked.items():
            os.dup2(fd, number)
        os.closerange(100, 300)
        os.chdir(launch.cwd)
        os.umask(0o022)
        # As a stub does; who runs the tests in the background may ignore the last three.
        for number in (
            signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT,
        ):  # fmt: skip
            signal.signal(number, signal.SIG_DFL)
        os.execve(launch.program, launch.argv, launch.env)
    finally:
        os._exit(99)


def _read_all(fds: list[int]) -> list[bytes]:
    """Read descriptors to their end."""
    content = dict.fromkeys(fds, b"")
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, 1 << 20)
                content[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return list(content.values())
