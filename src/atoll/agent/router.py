"""Pid 1: accepts connections, reads one HEADER from each, routes it. Never blocks, does no work.

Only the engine can connect (the listening socket has no name inside), but the router does not
rely on it: what a connection may send before it is routed is bounded in size and time.
"""

import json
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from atoll import errors
from atoll.agent import answer, channel
from atoll.agent.commands import Commands
from atoll.agent.config import Config
from atoll.agent.loop import GONE, READ, Loop
from atoll.wire.agent import PROTOCOL
from atoll.wire.frames import MAX_FRAME, Kind

HEADER_TIMEOUT: Final = 10.0
MAX_PENDING: Final = 512
"""Connections that have not sent their HEADER yet."""

_PREFIX: Final = 5
Handler = Callable[[socket.socket, dict[str, Any], list[int]], None]


class Router:
    """Owns the listening socket and all that is shared between operations."""

    def __init__(self, config: Config) -> None:
        self.loop = Loop()
        self._config = config
        self.loop.on_child(self._reap)
        self._listener = socket.socket(fileno=config.listen)
        self._listener.setblocking(False)
        self.loop.watch(self._listener.fileno(), READ, self._accept)
        self._pending: set[Pending] = set()
        commands = Commands(self.loop, config)
        self._routes: dict[str, Handler] = {
            "hello": self._hello,
            "exec": commands.exec,
            "attach": commands.attach,
            "control": commands.control,
            "operations": commands.operations,
        }

    def _accept(self, _: int) -> None:
        try:
            sock, _address = self._listener.accept()
        except OSError:
            return
        if len(self._pending) >= MAX_PENDING:
            sock.close()
            return
        pending = Pending(self.loop, sock, self._route, self._pending.discard)
        self._pending.add(pending)
        pending.read()

    def _route(self, sock: socket.socket, header: object, fds: list[int]) -> None:
        try:
            if not isinstance(header, dict):
                raise errors.ValidationFailedError("the HEADER is not a JSON object")
            name = header.get("op")
            handler = self._routes.get(name) if isinstance(name, str) else None
            if handler is None:
                raise errors.ValidationFailedError(
                    f"this agent has no operation {name!r}", context={"op": name}
                )
            handler(sock, header, fds)
        except errors.SandboxError as error:
            answer.fail(self.loop, sock, error)
        except OSError as error:
            answer.fail(self.loop, sock, errors.ResourceBusyError(f"the agent is busy: {error}"))
        finally:
            for fd in fds:
                with suppress(OSError):
                    os.close(fd)

    def _hello(self, sock: socket.socket, header: dict[str, Any], fds: list[int]) -> None:
        body = {
            "protocol": PROTOCOL,
            "version": self._config.version,
            "generation": self._config.generation,
            "pid": os.getpid(),
        }
        answer.reply(self.loop, sock, body)

    def _reap(self) -> None:
        """Collect ended supervisors, and orphans of supervisors that were killed.

        Commands are children of their supervisors, so no exit code is ever taken here.
        """
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


class Pending:
    """A connection whose HEADER is not complete."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        route: Callable[[socket.socket, object, list[int]], None],
        done: Callable[["Pending"], None],
    ) -> None:
        self._loop, self._sock, self._route, self._done = loop, sock, route, done
        self._data = bytearray()
        self._fds: list[int] = []
        sock.setblocking(False)
        self._timer = loop.later(HEADER_TIMEOUT, self._refuse)
        loop.watch(sock.fileno(), READ | GONE, lambda _: self.read())

    def read(self) -> None:
        """Read the HEADER and not a byte more: what follows belongs to who handles it."""
        try:
            while (missing := self._missing()) > 0:
                data, fds = channel.receive_bytes(self._sock, missing)
                self._fds += fds
                if not data or len(self._fds) > channel.MAX_FDS:
                    self._refuse()
                    return
                self._data += data
        except BlockingIOError:
            return
        except OSError:
            self._refuse()
            return
        if missing < 0:
            self._refuse()
            return
        self._release()
        try:
            header = json.loads(self._data[_PREFIX:])
        except (ValueError, RecursionError):
            header = None
        self._route(self._sock, header, self._fds)

    def _missing(self) -> int:
        """Return how many bytes to read next; negative when this is no HEADER."""
        if len(self._data) < _PREFIX:
            return _PREFIX - len(self._data)
        length = int.from_bytes(self._data[1:_PREFIX], "big")
        if self._data[0] != Kind.HEADER or length > MAX_FRAME:
            return -1
        return _PREFIX + length - len(self._data)

    def _release(self) -> None:
        self._timer.cancel()
        self._loop.forget(self._sock.fileno())
        self._done(self)

    def _refuse(self) -> None:
        self._release()
        self._sock.close()
        for fd in self._fds:
            os.close(fd)


def ignore_signals() -> None:
    """Ignore every signal that root inside can send (SIGCHLD is needed, KILL does not reach pid 1)."""
    kept = {signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP}
    for number in signal.valid_signals() - kept:
        with suppress(OSError):
            signal.signal(number, signal.SIG_IGN)
