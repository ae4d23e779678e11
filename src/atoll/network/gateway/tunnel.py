"""Bytes between two sockets, as they are.

Nothing is kept here but the piece that the other side has not taken: a client that opens many
connections and reads none of them takes kernel buffers, which are bounded, and 64 KiB each. Where
much comes at once pieces grow, as long as there is room: a gigabyte then takes the gateway 0.5 s of a
processor, not 0.8 s.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from atoll.errors import RateLimitedError
from atoll.host.budget import Budget, Share
from atoll.host.pump import both

PIECE, LARGEST = 1 << 16, 1 << 20
"""Bytes that are read at once, and where much comes."""

MAX_OF_ONE, MAX_OF_ALL = 8 << 20, 64 << 20
"""Bytes by which pieces may have grown, of one sandbox and of all."""

Watch = Callable[[bytes], bytes]


class Counts:
    """Bytes that left the sandbox, and that came."""

    def __init__(self) -> None:
        self.up = self.down = 0


async def tunnel(
    client: socket.socket,
    server: socket.socket,
    counts: Counts,
    room: Budget,
    *,
    watch_up: Watch | None = None,
    watch_down: Watch | None = None,
) -> None:
    """Carry bytes both ways until both sides have ended, or one is lost. Closes neither.

    Args:
        client: the sandbox's side.
        server: the other one.
        counts: is kept up to date.
        room: for pieces that grow.
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
        (
            _carry(client, server, up, watch_up, room),
            _carry(server, client, down, watch_down, room),
        ),
        lambda: counts.up + counts.down,
    )
    for way in done:
        way.result()


async def _carry(
    source: socket.socket,
    sink: socket.socket,
    count: Callable[[int], None],
    watch: Watch | None,
    room: Budget,
) -> None:
    loop = asyncio.get_running_loop()
    with room.share() as grown:
        while data := await loop.sock_recv(source, PIECE + grown.size):
            count(len(data))
            await loop.sock_sendall(sink, watch(data) if watch else data)
            _fit(grown, len(data))
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _fit(grown: Share, came: int) -> None:
    """Have the next piece be twice as large where this one was full, and small again where it was not."""
    size = PIECE + grown.size
    with suppress(RateLimitedError):
        if came <= size // 2:
            grown.hold(0)
        elif came == size < LARGEST:
            grown.hold(2 * size - PIECE)
