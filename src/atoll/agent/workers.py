"""The router's side of its supervisors: forked ahead, handed a command, heard until they leave."""

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from atoll.agent import channel
from atoll.agent.channel import Message
from atoll.agent.config import Config
from atoll.agent.loop import READ, Loop
from atoll.agent.operations import Operation
from atoll.agent.supervisor import supervise


class Worker:
    """One supervisor."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid, self.sock = pid, sock
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
        self._ready: Worker | None = None

    def __len__(self) -> int:
        return len(self._all) - (self._ready is not None)

    def operations(self) -> Iterator[Operation]:
        """Yield the operations of all supervisors, also of those that only stay behind."""
        for worker in list(self._all.values()):
            if worker.operation:
                yield worker.operation

    def pids(self) -> set[int]:
        """Return the processes of all supervisors."""
        return set(self._all)

    def prepare(self) -> None:
        """Have a supervisor and its stub ready for the next command.

        Called when one reports, not when it is handed a command: the fork would delay that command
        by as much as it saves the next.
        """
        if self._ready is None:
            self._ready = self._fork()

    def take(self, operation: Operation) -> Worker:
        """Return the supervisor that is ready (or a new one) for *operation*."""
        worker, self._ready = self._ready, None
        if worker is None or worker.gone:
            worker = self._fork()
        worker.operation, operation.supervisor = operation, worker
        return worker

    def _fork(self) -> Worker:
        ours, theirs = channel.pair()
        pid = os.fork()
        if not pid:
            supervise(theirs, self._config)
        theirs.close()
        ours.setblocking(False)
        worker = self._all[pid] = Worker(pid, ours)
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
        elif worker.operation:
            self._on_report(worker, message)
            self._loop.later(0, self.prepare)
        return message is not None

    def _leave(self, worker: Worker) -> None:
        self._loop.forget(worker.sock.fileno())
        worker.sock.close()
        del self._all[worker.pid]
        if worker is self._ready:
            self._ready = None
        if worker.operation:
            self._on_left(worker)
        self.prepare()
