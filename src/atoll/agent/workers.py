"""The router's side of its supervisors: forked ahead, handed a command, taken back after it."""

import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from atoll.agent import channel
from atoll.agent.channel import Message
from atoll.agent.config import Config
from atoll.agent.isolation import PidNamespace
from atoll.agent.loop import READ, Loop, Timer
from atoll.agent.operations import Operation
from atoll.agent.supervisor import supervise

_PAUSE: Final = 0.02
"""Seconds without a command after which the next supervisor is forked, if none is ready by then.
Forked at once it would delay the command that has just begun; and most often that command's own
supervisor is back before."""

MAX_READY: Final = 2
"""One that waits and one that comes back: enough for calls one after the other. As many may wait
in the namespaces of isolated sessions, all together."""

IDLE: Final = 2.0
"""Seconds after which a second one that waits has to go, and each of an isolated session."""


class Worker:
    """One supervisor; *namespace* is where its commands run, None: in the sandbox's own."""

    def __init__(self, pid: int, sock: socket.socket, namespace: PidNamespace | None) -> None:
        self.pid, self.sock, self.namespace = pid, sock, namespace
        self.operation: Operation | None = None

    @property
    def gone(self) -> bool:
        """Whether it has ended, noticed or not."""
        try:
            return not self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def tell(self, body: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a message without waiting.

        Raises:
            OSError: it has gone, or has not read for a long time.
        """
        with suppress(ProcessLookupError):  # root inside may have stopped it
            os.kill(self.pid, signal.SIGCONT)
        channel.send(self.sock, body, fds)


class Workers:
    """All supervisors; one of them waits for the next command.

    Args:
        on_report: called with every message of a supervisor that has a command.
        on_left: called when such a supervisor has gone.
    """

    def __init__(
        self,
        loop: Loop,
        config: Config,
        *,
        on_report: Callable[[Worker, Message], None],
        on_left: Callable[[Worker], None],
    ) -> None:
        self._loop, self._config = loop, config
        self._on_report, self._on_left = on_report, on_left
        self._all: dict[int, Worker] = {}
        self._ready: deque[Worker] = deque()
        self._timer: Timer | None = None
        self._trimming: Timer | None = None

    def __len__(self) -> int:
        return len(self._all) - len(self._ready)

    def operations(self) -> Iterator[Operation]:
        """Yield the operations of all supervisors, also of those that only stay behind."""
        for worker in list(self._all.values()):
            if worker.operation:
                yield worker.operation

    def pids(self) -> set[int]:
        """Return the processes of all supervisors."""
        return set(self._all)

    def prepare(self) -> None:
        """Have a supervisor and its stub ready for the next command."""
        if not self._waiting(isolated=False):
            self._ready.append(self._fork(None))

    def take(self, operation: Operation, namespace: PidNamespace | None = None) -> Worker:
        """Return a supervisor in *namespace* that is ready (or a new one) for *operation*."""
        worker = self._take_ready(namespace) or self._fork(namespace)
        worker.operation, operation.supervisor = operation, worker
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.later(_PAUSE, self.prepare)
        return worker

    def _take_ready(self, namespace: PidNamespace | None) -> Worker | None:
        for worker in [one for one in self._ready if one.namespace is namespace]:
            self._ready.remove(worker)
            if not worker.gone:
                return worker
            self.catch_up(worker)
        return None

    def _waiting(self, *, isolated: bool) -> list[Worker]:
        return [one for one in self._ready if (one.namespace is not None) == isolated]

    def _fork(self, namespace: PidNamespace | None) -> Worker:
        ours, theirs = channel.pair()
        pid = namespace.fork() if namespace else os.fork()
        if not pid:
            supervise(theirs, self._config, namespace)
        theirs.close()
        ours.setblocking(False)
        worker = self._all[pid] = Worker(pid, ours, namespace)
        self._loop.watch(ours.fileno(), READ, lambda _: self.catch_up(worker))
        return worker

    def catch_up(self, worker: Worker) -> None:
        """Hear what *worker* has already said.

        Its caller may have been told of the end, and ask for what comes next, before this loop
        came to read of it.
        """
        while worker.pid in self._all and self._hear(worker):
            pass

    def _hear(self, worker: Worker) -> bool:
        """Handle one message; return whether there was one."""
        try:
            message = channel.receive(worker.sock)
        except BlockingIOError:
            return False
        except (OSError, ValueError):
            message = None
        if message is None:
            self._leave(worker)
        elif message.body["report"] == "ready":
            self._take_back(worker)
        elif worker.operation:
            self._on_report(worker, message)
        return message is not None

    def _take_back(self, worker: Worker) -> None:
        if worker.operation:
            worker.operation.supervisor = None
            worker.operation = None
        self._ready.append(worker)
        isolated = worker.namespace is not None
        waiting = self._waiting(isolated=isolated)
        if len(waiting) > MAX_READY:
            self._leave(waiting[0])
        elif isolated or len(waiting) > 1:
            self._trimming = self._trimming or self._loop.later(IDLE, self._trim)

    def _trim(self) -> None:
        """After a quiet time one that waits is enough; each has 1 MB of its own."""
        self._trimming = None
        for worker in self._waiting(isolated=True) + self._waiting(isolated=False)[:-1]:
            self._leave(worker)

    def _leave(self, worker: Worker) -> None:
        self._loop.forget(worker.sock.fileno())
        worker.sock.close()
        del self._all[worker.pid]
        if worker in self._ready:
            self._ready.remove(worker)
        if worker.operation:
            self._on_left(worker)
