"""The connection to a server inside, kept for one visitor's connection and nobody else.

Sharing connections between visitors would save a millisecond and let a server, or a visitor, that
gets the other side out of step read what belongs to somebody else.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from atoll.host.messages import Answers
from atoll.host.pump import Channel
from atoll.proxy.access import ENTER, Access
from atoll.wire.ports import Visit
from atoll.wire.preview import Target


class Route(Protocol):
    """An exposed port: what the proxy needs of the engine's `Forwarding`."""

    visits: deque[Visit]

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id."""

    @property
    def port(self) -> int:
        """The port inside."""

    @property
    def access(self) -> Access:
        """Who may visit."""

    def check(self) -> None:
        """Raise a `SandboxError` where it forwards nothing now."""

    async def dial(self) -> socket.socket:
        """Return a connection to the port; raise a `SandboxError` where that cannot be."""

    def touch(self) -> None:
        """Take note of traffic."""

    def waiting(self) -> AbstractContextManager[None]:
        """Hold off sleep while an answer is awaited."""

    def connected(self, cut: Callable[[], None]) -> AbstractContextManager[None]:
        """Count an open connection; *cut* ends it when the exposure ends."""

    async def enter(self, key: str) -> bool:
        """Use up a one-time link; return whether there was one."""


class Routes(Protocol):
    """All exposed ports: what the proxy needs of the engine's `Ports`."""

    def find(self, target: Target, namespaces: frozenset[str] | None = None) -> Route:
        """Return what *target* names; raise a `SandboxError` where that forwards nothing now."""


class Server(Answers):
    """One connection to a server inside."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.answered = 0

    @classmethod
    async def connect(cls, route: Route) -> "Server":
        """Open one; raise as `Route.dial`."""
        connection = await route.dial()
        try:
            _, channel = await asyncio.get_running_loop().create_connection(
                Channel, sock=connection
            )
        except BaseException:
            connection.close()
            raise
        return cls(channel)

    async def read(self) -> bytes:
        """See `Answers.read`; what came is counted."""
        data = await super().read()
        self.answered += len(data)
        return data


def visit_path(target: bytes) -> str:
    """Return what the access log shows of *target*: no query and no link, which are secrets."""
    if ENTER.fullmatch(target):
        return "/.atoll/enter"
    return target.partition(b"?")[0][:200].decode("latin-1")
