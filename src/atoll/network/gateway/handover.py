"""Listeners of sandboxes whose network is their own: handed to the gateway while it runs.

They come as datagrams to a unix socket of the gateway's folder, since the protocol's own stream is
read by a library that drops descriptors. `Giving` is the engine's end, `Handover` the gateway's.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import structlog

from atoll.errors import ContainerUnavailableError
from atoll.host import unix
from atoll.host.threads import run_to_end
from atoll.network.gateway.client import GatewayClient
from atoll.network.gateway.protocol import Done, Take

TIMEOUT: Final = 10.0
"""Seconds until the gateway has room for listeners of a sandbox."""

MAX_NAME: Final = 256
"""Bytes of a sandbox's name."""

COUNT: Final = 3

Lend: TypeAlias = Callable[[str], Awaitable[list[int]]]
"""Returns, by host_ref, copies of the listeners in a sandbox's own network."""

_log = structlog.get_logger(__name__)


class Listeners(NamedTuple):
    """Sockets that others made: listening, for connections and the resolver's; and for UDP."""

    connections: tuple[socket.socket, ...]
    dns_tcp: tuple[socket.socket, ...]
    dns_udp: tuple[socket.socket, ...]


class Giving:
    """The engine's end: knows what the gateway that runs now has.

    Args:
        path: of the gateway's socket.
        lend: where listeners are from; None: sandboxes have none of their own.
    """

    def __init__(self, path: Path, lend: Lend | None) -> None:
        self.path = path
        self._lend = lend
        self._given: set[str] = set()
        self._lock = asyncio.Lock()

    @property
    def needed(self) -> bool:
        """Whether sandboxes have listeners of their own."""
        return self._lend is not None

    def begin(self) -> None:
        """Make way for the socket of a new gateway, which has nothing yet."""
        self._given.clear()
        self.path.unlink(missing_ok=True)

    def forget(self, host_ref: str) -> None:
        """A sandbox is no more."""
        self._given.discard(host_ref)

    async def give(self, client: GatewayClient, host_ref: str) -> None:
        """Give the gateway the listeners of a sandbox, unless it has them or there are none.

        Raises:
            ContainerUnavailableError: they are lost, or it takes none (reason "network").
            GatewayGone: it ended.
        """
        if self._lend is None or host_ref in self._given:
            return
        files = await self._lend(host_ref)
        try:
            async with self._lock:  # it keeps those only that it is told to take
                await run_to_end(unix.send_files, self.path, host_ref.encode(), files, TIMEOUT)
                await client.ask(Take(host_ref=host_ref), Done)
        except (OSError, ValueError) as error:
            raise ContainerUnavailableError(
                f"the egress gateway takes no listeners: {error}", context={"reason": "network"}
            ) from error
        finally:
            for fd in files:
                os.close(fd)
        self._given.add(host_ref)

    async def give_again(self, client: GatewayClient, host_ref: str) -> None:
        """Give a new gateway what the last one had; a sandbox without listeners reaches nothing."""
        try:
            await self.give(client, host_ref)
        except ContainerUnavailableError as error:
            _log.warning("a sandbox has lost its network", host_ref=host_ref, reason=str(error))


class Handover:
    """The gateway's end.

    Args:
        receiver: unix socket of datagrams.
    """

    def __init__(self, receiver: socket.socket) -> None:
        receiver.setblocking(False)
        self._receiver = receiver

    def taken(self, host_ref: str) -> Listeners | None:
        """Return the listeners that were sent last for *host_ref*; others are closed."""
        found = None
        while received := self._received():
            name, files = received
            if name == host_ref.encode() and len(files) == COUNT:
                _close(found)
                found = files
            else:
                _close(files)
        if found is None:
            return None
        connections, dns_tcp, dns_udp = (socket.socket(fileno=fd) for fd in found)
        return Listeners((connections,), (dns_tcp,), (dns_udp,))

    def _received(self) -> tuple[bytes, list[int]] | None:
        try:
            name, files, _, _ = socket.recv_fds(self._receiver, MAX_NAME, COUNT)
        except BlockingIOError:
            return None
        return name, files


def _close(files: list[int] | None) -> None:
    for fd in files or ():
        os.close(fd)
