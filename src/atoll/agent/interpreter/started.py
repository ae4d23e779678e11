"""A program of the image started as an ordinary confined command, with a socket to us."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from atoll.agent import launch
from atoll.agent.config import Config
from atoll.agent.forked import Stub
from atoll.agent.interpreter.programs import PROTOCOL_FD, Program
from atoll.agent.launch import Plan
from atoll.agent.loop import READ, Loop
from atoll.agent.pump import Pump
from atoll.agent.users import User
from atoll.wire.frames import Kind

TAIL: Final = 4 << 10
"""Bytes kept of what the program prints outside of any execution: they tell why it ended."""


class Started:
    """One such program.

    Args:
        socket_fd: the program's end; it gets a duplicate as descriptor `PROTOCOL_FD`.
        on_failed: called with the typed error when it could not be executed.
        on_output: called with what it prints; None: the end of it is kept in `tail`.
    """

    def __init__(
        self,
        loop: Loop,
        config: Config,
        program: Program,
        *,
        user: User,
        env: Mapping[str, str],
        cwd: str,
        socket_fd: int,
        on_failed: Callable[[Exception], None],
        on_output: Callable[[int, bytes], None] | None = None,
    ) -> None:
        self._loop, self._program, self._on_failed = loop, program, on_failed
        self.tail = bytearray()
        self.failed = False
        self.stub = Stub(config)
        self.stub.use_null()
        self.pid = self.stub.pid
        plan = Plan(program.path, program.argv, dict(env), cwd, {})
        message: dict[str, Any] = plan.message(user, tty=False)
        self.stub.run(message, {PROTOCOL_FD: socket_fd})
        self.pump = Pump(loop, on_output or self._keep, lambda: None)
        self.pump.add(self.stub.stdout, Kind.STDOUT)
        self.pump.add(self.stub.stderr, Kind.STDERR)
        loop.watch(self.stub.sock.fileno(), READ, lambda _: self._progress())

    def _progress(self) -> None:
        stub = self.stub
        if not stub.progress():
            return
        self._loop.forget(stub.sock.fileno())
        stub.sock.close()
        if stub.report:
            self.failed = True
            self._on_failed(launch.failure(stub.report, self._program.argv))

    def _keep(self, _: int, data: bytes) -> None:
        self.tail += data
        del self.tail[:-TAIL]

    @property
    def said(self) -> str:
        """The end of what it printed."""
        return bytes(self.tail).decode(errors="replace").strip()


def ended(status: int) -> dict[str, Any]:
    """Return exit code and signal of a wait status, as an exec reports them."""
    from atoll.agent.command import signal_name

    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"exitCode": 128 + number, "signal": signal_name(number)}
    return {"exitCode": os.WEXITSTATUS(status), "signal": None}
