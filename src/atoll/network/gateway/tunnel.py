"""Bytes between two sockets, as they are.

Nothing is kept here but the piece that the other side has not taken: a client that opens many
connections and reads none of them takes kernel buffers, which are bounded, and 64 KiB each.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from atoll.host.pump import both

PIECE = 1 << 16
"""Bytes that are read at once."""

Watch = Callable[[bytes], bytes]


class Counts:
    """Bytes that left the sandbox, and that came."""

    def __init__(self) -> None:
        self.up = self.down = 0


async def tunnel(
    client: socket.socket,
    server: socket.socket,
    counts: Counts,
    *,
    watch_up: Watch | None = None,
    watch_down: Watch | None = None,
) -> None:
    """Carry bytes both ways until both sides have ended, or one is lost. Closes neither.

    Args:
        client: the sandbox's side.
        server: the other one.
        counts: is kept up to date.
        watch_up: is shown what goes to the server, and returns what may go now.
        watch_down: likewise for the client.

    Raises:
        OSError: a side is lost.
        Exception: whatever a watch raises.
    """

    def up(size: int) -> None:
        counts.up += size

    def down(size: int) -> None:
        counts.down += size

    done = await both(
        (_carry(client, server, up, watch_up), _carry(server, client, down, watch_down)),
        lambda: counts.up + counts.down,
    )
    for way in done:
        way.result()


async def _carry(
    source: socket.socket, sink: socket.socket, count: Callable[[int], None], watch: Watch | None
) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, PIECE):
        count(len(data))
        await loop.sock_sendall(sink, watch(data) if watch else data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
