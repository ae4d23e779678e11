"""WebSocket connections with the limit that the server library lacks: on callers who never read.

Its pings do not help there: they end with a close that waits until all is read that was sent.
"""

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_MESSAGE = 32 << 20
"""Bytes of one message."""


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """One upgraded connection."""

    stall: float | None = None
    """Seconds the other end may leave what was sent unread; None: for ever."""

    _stalled: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._read_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the other end to read: not for ever."""
        super().pause_writing()
        if self.stall is not None and self._stalled is None:
            self._stalled = self.loop.call_later(self.stall, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the other end has read."""
        self._read_on()
        super().resume_writing()

    async def send(self, message: Any) -> None:
        """Send; an upgrade that was refused is complete, which the library would log as a fault."""
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True

    def _read_on(self) -> None:
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None
