"""How a connection is closed without losing the end of what was sent.

A socket that is closed while the peer still sends makes the peer's next write fail, and a peer
that gives up then never reads the answer that is already there (with TCP it is even thrown away).
So the sending side is closed first, and what still comes is read until the peer has closed too.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from atoll.agent.loop import GONE, READ, Loop

PATIENCE: Final = 10.0
"""Seconds the peer has to close."""


def hang_up(loop: Loop, sock: socket.socket, done: Callable[[], None]) -> None:
    """Say that nothing more comes, wait for the peer to close, close, call *done*."""
    fd = sock.fileno()
    with suppress(OSError):
        sock.shutdown(socket.SHUT_WR)

    def close() -> None:
        timer.cancel()
        if sock.fileno() >= 0:
            loop.forget(fd)
            sock.close()
            done()

    def discard() -> None:
        with suppress(BlockingIOError):
            try:
                while sock.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
            close()

    timer = loop.later(PATIENCE, close)
    loop.watch(fd, READ | GONE, lambda _: discard())
