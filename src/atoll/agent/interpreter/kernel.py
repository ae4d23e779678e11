"""One kernel process as the host sees it: its socket, its pids, its death.

Who a message comes from is told by the operating system (`SCM_CREDENTIALS`), so a process cannot
have another one signalled in its place by naming its pid.
"""

import os
import signal
import socket
import struct
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from atoll.agent import tree
from atoll.agent.feeder import Feeder
from atoll.agent.interpreter import messages
from atoll.agent.interpreter.messages import Message, MessageError
from atoll.agent.loop import GONE, READ, Loop, Timer

_READ: Final = 1 << 18
_CREDENTIALS: Final = struct.Struct("3i")
_AGAIN: Final = 0.1
_STATUS: Final = 0.3
"""Seconds to wait for the status of a kernel whose socket has ended."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Return our end and the kernel's."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    ours.setblocking(False)
    return ours, theirs


class Kernel:
    """Sends and receives messages, and tells once that the process is gone.

    Args:
        sock: our end.
        on_message: called with every message but those about pids and death.
        on_gone: called once, with the wait status (None when nobody knows it) and whether it
            broke the protocol.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        *,
        on_message: Callable[[Message], None],
        on_gone: Callable[[int | None, str], None],
    ) -> None:
        self._loop, self._sock = loop, sock
        self._on_message, self._on_gone = on_message, on_gone
        self._decoder = messages.Decoder()
        self._feeder = Feeder(loop, os.dup(sock.fileno()), lambda: None)
        self._again: Timer | None = None
        self.pid: int | None = None
        self.keeper: int | None = None
        self.status: int | None = None
        self.gone = False
        self._fault = ""
        self._paused = False
        self._watch()

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send a message; *fds* travel with its first bytes."""
        if fds and not self.gone:
            try:
                sent = self._sock.sendmsg(
                    [data[: messages.HEADER.size]],
                    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))],
                )
            except OSError:  # it has ended: what it left to be read says how
                return
            data = data[sent:]
        self._feeder.write(data)

    def pause(self, paused: bool) -> None:
        """Stop or go on reading."""
        if paused != self._paused:
            self._paused = paused
            if not self.gone:
                self._watch()

    def interrupt(self) -> None:
        """Do what Ctrl-C does on a terminal: to the kernel and what it runs in the foreground."""
        if self.pid is not None and not self.gone:
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill the kernel with everything below it, again and again until it is gone."""
        if self.gone:
            return
        if self.keeper is not None:
            tree.kill_all(self.keeper)
            tree.send(self.keeper, signal.SIGCONT)
        elif self.pid is not None:
            tree.send(self.pid, signal.SIGSTOP)
            tree.kill_all(self.pid)
            tree.send(self.pid, signal.SIGKILL)
        self._again = self._loop.later(_AGAIN, self.kill)

    def ended(self, status: int) -> None:
        """Note the wait status that the operating system told."""
        self.status = status
        self._end()

    def _watch(self) -> None:
        fd = self._sock.fileno()
        if self._paused:
            self._loop.watch(fd, GONE, lambda _: self._loop.forget(fd))
        else:
            self._loop.watch(fd, READ, lambda _: self._read())

    def _read(self) -> None:
        try:
            data, ancillary, _, _ = self._sock.recvmsg(
                _READ, socket.CMSG_SPACE(_CREDENTIALS.size), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        sender = _sender(ancillary)
        try:
            for message in self._decoder.feed(data):
                self._take(message, sender)
        except MessageError as error:
            self._fault = str(error)
            self.kill()
            self._loop.forget(self._sock.fileno())
            self._loop.later(_STATUS, self._end)
            return
        if not data:
            self._loop.forget(self._sock.fileno())
            if self.status is None and self.keeper is None:
                self._loop.later(_STATUS, self._end)
            else:
                self._end()

    def _take(self, message: Message, sender: int | None) -> None:
        if message.kind == messages.KEEPER:
            self.keeper = self.keeper or sender
        elif message.kind == messages.EXIT:
            self.status = _status(message)
            if self.keeper is not None:  # it waits for what is left
                tree.kill_all(self.keeper)
        else:
            if message.kind == messages.READY:
                self.pid = self.pid or sender
            self._on_message(message)

    def _end(self) -> None:
        if self.gone:
            return
        self.gone = True
        if self._again:
            self._again.cancel()
        self._loop.forget(self._sock.fileno())
        self._feeder.close()
        self._sock.close()
        self._on_gone(self.status, self._fault)


def _status(message: Message) -> int | None:
    status = messages.decode(message).get("status")
    return status if isinstance(status, int) and 0 <= status < 1 << 16 else None


def _sender(ancillary: Sequence[tuple[int, int, bytes]]) -> int | None:
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(_CREDENTIALS.unpack(payload[: _CREDENTIALS.size])[0])
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            for fd in array("i", payload[: len(payload) // 4 * 4]):
                os.close(fd)
    return None
