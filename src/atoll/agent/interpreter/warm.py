"""The pre-warmed Python: started with the first context, forks kernels, ends when none are wanted."""

import os
import socket
from array import array
from collections.abc import Callable, Mapping
from typing import Final

from atoll import errors
from atoll.agent.config import Config
from atoll.agent.interpreter.programs import Program
from atoll.agent.interpreter.started import Started
from atoll.agent.loop import READ, Loop, Timer
from atoll.agent.users import User

IDLE: Final = 300.0
"""Seconds after which it ends when no context was made; the contexts stay."""

START: Final = 60.0
"""Seconds that its imports may take on a busy machine with a cold disk."""

_DECIDING: Final = (
    "PYTHON",
    "LD_",
    "OPENBLAS",
    "OMP_",
    "MKL_",
    "MPL",
    "VIRTUAL_ENV",
    "HOME",
    "PATH",
)
"""Variables, by how they begin, that act before code runs: another value needs another process."""


def key(program: Program, user: User, env: Mapping[str, str]) -> tuple[object, ...]:
    """Return what two contexts must have in common to be forked from one process. Pure."""
    deciding = {name: value for name, value in env.items() if name.startswith(_DECIDING)}
    return program.path, user.uid, user.gid, tuple(sorted(deciding.items()))


class Warm:
    """One such process.

    Args:
        on_gone: called once, when it has ended or could not be started.
    """

    def __init__(
        self,
        loop: Loop,
        config: Config,
        program: Program,
        *,
        user: User,
        env: Mapping[str, str],
        on_gone: Callable[["Warm"], None],
    ) -> None:
        self._loop, self._on_gone = loop, on_gone
        self.key = key(program, user, env)
        self.error: Exception | None = None
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._ready = self.closed = False
        self._waiting: list[socket.socket] = []
        self._idle: Timer | None = None
        with theirs:
            self.process = Started(
                loop, config, program,
                user=user, env=env, cwd="/", socket_fd=theirs.fileno(), on_failed=self._failed,
            )  # fmt: skip
        self._late = loop.later(START, self._too_late)
        loop.watch(self._ours.fileno(), READ, lambda _: self._read())
        self._rest()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def fork(self, kernel: socket.socket) -> None:
        """Have a kernel made that speaks by *kernel*, which is closed here."""
        self._rest()
        if self.closed:
            kernel.close()
        elif self._ready:
            self._hand_over(kernel)
        else:
            self._waiting.append(kernel)

    def close(self) -> None:
        """Let it end; its kernels live on."""
        if self.closed:
            return
        self.closed = True
        for timer in (self._idle, self._late):
            if timer:
                timer.cancel()
        self._loop.forget(self._ours.fileno())
        self._ours.close()
        waiting, self._waiting = self._waiting, []
        for kernel in waiting:
            kernel.close()
        self._on_gone(self)

    def _rest(self) -> None:
        if self._idle:
            self._idle.cancel()
        self._idle = self._loop.later(IDLE, self.close)

    def _read(self) -> None:
        try:
            data = self._ours.recv(1 << 12)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.error = self.error or _unready(self.process.said)
            self.close()
            return
        self._ready = True
        self._late.cancel()
        waiting, self._waiting = self._waiting, []
        for kernel in waiting:
            self._hand_over(kernel)

    def _hand_over(self, kernel: socket.socket) -> None:
        with kernel:
            try:
                rights = array("i", [kernel.fileno()])
                self._ours.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            except OSError as error:
                self.error = _unready(os.strerror(error.errno or 0))
                self._loop.soon(self.close)

    def _failed(self, error: Exception) -> None:
        self.error = error
        self.close()

    def _too_late(self) -> None:
        self.error = _unready(f"its imports took more than {START:g} s")
        self.close()


def _unready(why: str) -> errors.SandboxError:
    return errors.InterpreterNotReadyError(
        "the Python interpreter of contexts did not start" + (f": {why[-500:]}" if why else ""),
        suggestion="try again; `python3 -c pass` in the sandbox shows whether its Python works",
    )
