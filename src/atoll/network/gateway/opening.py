"""Finds out what a connection speaks, without keeping a protocol waiting that is not the web's.

The first bytes decide, but not each protocol sends enough of them at once: in some the server speaks
first, in some the client sends a few letters, which may be the beginning of a request, and waits for
the answer. So a client that is silent for a moment is connected to the server, where the address may be
connected to at all, and what it has sent is passed on without being taken from it. As long as the
server says nothing, the client's bytes decide as ever: if they become a request or a ClientHello,
that connection is given up, with a part of a line or of a record sent that no server acts upon.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from atoll.network.gateway import peeking, sniff
from atoll.network.gateway.sniff import Kind

FIRST_BYTES = 15.0
"""Seconds that the client has until it is known what it wants, if it sends something."""

QUIET = 0.25
"""Seconds of silence after which it may be waiting for the server."""


class Opening:
    """The beginning of one connection.

    Args:
        client: the sandbox's side, not blocking.
        connect: connects to where it was going.
        may_connect: whether it may be connected before it is known what it speaks.
        web: it was going to a port of the web.

    Attributes:
        server: the connection that was made, if there is one and it is of use still.
    """

    def __init__(
        self,
        client: socket.socket,
        connect: Callable[[], Awaitable[socket.socket]],
        *,
        may_connect: Callable[[], bool],
        web: bool,
    ) -> None:
        self._client = client
        self._connect = connect
        self._may_connect = may_connect
        self._web = web
        self._passed = 0
        self.server: socket.socket | None = None

    async def kind(self, limit: asyncio.Timeout) -> Kind:
        """Return what the client speaks; *limit* does not run while a server is waited for.

        Raises:
            OSError: a side is lost.
        """
        seen = 0
        while True:
            if await self._server_began(seen, limit):
                return Kind.OTHER
            data = peeking.peek(self._client, sniff.MAX)
            ended, seen = len(data) <= seen, len(data)
            if kind := sniff.kind(data, web=self._web, ended=ended):
                if kind is not Kind.OTHER:
                    self._give_up()
                return kind

    def taken(self) -> int:
        """Take from the client what the server has of it already; return how many bytes."""
        left = self._passed
        while left:
            left -= len(self._client.recv(left))
        return self._passed

    async def _server_began(self, seen: int, limit: asyncio.Timeout) -> bool:
        """Wait for more than *seen* bytes, or the client's end; tell whether the server was first."""
        if self.server is None:
            if not self._may_connect():
                await peeking.readable(self._client, seen)
                return False
            try:
                async with asyncio.timeout(QUIET):
                    await peeking.readable(self._client, seen)
                return False
            except TimeoutError:
                self.server = await self._connect()
        await self._pass(self.server, seen)
        limit.reschedule(None)  # it may be silent as long as its protocol likes
        await peeking.first_readable({self._client: seen, self.server: 0})
        limit.reschedule(asyncio.get_running_loop().time() + FIRST_BYTES)
        return not peeking.is_readable(self._client, seen)

    async def _pass(self, server: socket.socket, seen: int) -> None:
        data = peeking.peek(self._client, seen)[self._passed :]
        self._passed += len(data)
        if data:
            await asyncio.get_running_loop().sock_sendall(server, data)

    def _give_up(self) -> None:
        """Forget a server that has a part of what another one, or another connection, is to get."""
        if self.server and self._passed:
            self.server.close()
            self.server, self._passed = None, 0
