"""Connections of which many are open: little of each is in memory.

uvloop reads 256 KiB at once where a protocol does not bring its own buffer, and a sandbox that opens
thousands of connections and leaves them unread would have as much in the gateway for each.
"""

import asyncio

from atoll.host.pump import HIGH, Channel

WIDE = 256
"""Connections of one sandbox that may be as fast as they can."""

NARROW = 1 << 14
"""Bytes that are read at once from others, and that may wait."""


def high(connections: int) -> int:
    """Return how much may wait of one more connection of a sandbox that has *connections*."""
    return HIGH if connections < WIDE else NARROW


def protocol(channel: Channel) -> asyncio.BaseProtocol:
    """Return what feeds *channel*: itself, or pieces as large as what may wait in it."""
    return channel if channel.high >= HIGH else _Narrow(channel)


class _Narrow(asyncio.BufferedProtocol):
    """Feeds a channel from a buffer of its own."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._buffer = bytearray(channel.high)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._channel.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._channel.data_received(bytes(memoryview(self._buffer)[:nbytes]))

    def eof_received(self) -> bool:
        return self._channel.eof_received()

    def pause_writing(self) -> None:
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        self._channel.resume_writing()
