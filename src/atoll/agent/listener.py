"""Where the agent is reached, and who may speak to it.

A unix socket that was inherited has no name inside: who can connect is the engine. An address is
open to everybody inside, so every HEADER has to carry the token of this start.
"""

import socket
from _operator import _compare_digest
from contextlib import suppress
from typing import Any, Final

from atoll import errors
from atoll.agent.config import Config

MAX_GUESSES: Final = 1_000
"""Wrong tokens that are answered; whoever sends more of them is only hung up on."""

_BACKLOG: Final = 512
_IDLE: Final = 30
"""Seconds without traffic after which the kernel asks whether the peer is still there."""


def open_listener(config: Config) -> socket.socket:
    """Return the listening socket, inherited or opened here; it does not block.

    Raises:
        OSError: the address is taken, or the descriptor is no socket.
    """
    if config.tcp is None:
        listener = socket.socket(fileno=config.listen)
    else:
        address = str(config.tcp["host"]), int(config.tcp["port"])
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def tune(sock: socket.socket) -> None:
    """Send frames at once, and notice a peer that went without a word."""
    if sock.family == socket.AF_UNIX:
        return
    with suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)


class Gate:
    """Lets requests with the right token pass; without a token it lets all pass."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._guesses = 0

    @property
    def answers(self) -> bool:
        """Whether who was refused is still told so."""
        return self._guesses <= MAX_GUESSES

    def check(self, header: dict[str, Any]) -> None:
        """Take the token out of *header*.

        Raises:
            UnauthorizedError: it is missing or wrong.
        """
        token = header.pop("token", None)
        given = token.encode("utf-8", "surrogatepass") if isinstance(token, str) else b""
        if self._token and not _compare_digest(given, self._token):
            self._guesses += 1
            raise errors.UnauthorizedError("the agent's token is missing or wrong")
