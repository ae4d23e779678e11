"""Frames the router itself sends on a connection: never blocking, then closed."""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from atoll import errors
from atoll.agent.farewell import hang_up
from atoll.agent.loop import GONE, WRITE, Loop
from atoll.wire import frames
from atoll.wire.frames import Kind


class Request(NamedTuple):
    """A connection whose HEADER was read, with the descriptors that came along."""

    sock: socket.socket
    header: dict[str, Any]
    fds: list[int]


def reply(loop: Loop, sock: socket.socket, body: Mapping[str, Any]) -> None:
    """Send the REPLY that ends an operation."""
    Answer(loop, sock, [frames.encode_json(Kind.REPLY, body)])


def fail(loop: Loop, sock: socket.socket, error: errors.SandboxError) -> None:
    """Send the ERROR that ends an operation."""
    Answer(loop, sock, [frames.encode_json(Kind.ERROR, error.to_wire())])


class Answer:
    """Sends *chunks* as the peer takes them, then hangs up; *done* is called after that."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        chunks: Iterable[bytes],
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop, self._sock, self._done = loop, sock, done
        self._chunks: Iterator[bytes] = iter(chunks)
        self._rest = memoryview(b"")
        sock.setblocking(False)
        self._send()

    def _send(self) -> None:
        try:
            while self._rest or self._next():
                self._rest = self._rest[self._sock.send(self._rest) :]
        except BlockingIOError:
            self._loop.watch(self._sock.fileno(), WRITE | GONE, lambda _: self._send())
        except OSError:
            self._loop.forget(self._sock.fileno())
            self._sock.close()
            self._done()
        else:
            hang_up(self._loop, self._sock, self._done)

    def _next(self) -> bool:
        for chunk in self._chunks:
            if chunk:
                self._rest = memoryview(chunk)
                return True
        return False
