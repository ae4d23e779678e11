"""What is written to a connection in one round of the event loop leaves in one system call.

The head of an answer, its pieces and its end are separate writes of the server library. Each on
its own wakes the reader: a short command's answer came in four pieces, which cost the SDK's
process 0.2 ms more than one (of 0.9).
"""

import asyncio
from typing import Any

FULL = 1 << 16
"""Bytes that are sent at once: so the transport's own limits hold back whoever writes on."""


class Corked:
    """An asyncio transport that gathers its writes; for all else it is the *transport*."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send *data* with what else is written in this round."""
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)
        self._size += len(data)
        if self._size >= FULL:
            self._send()

    def close(self) -> None:
        """Send what was written, then end the connection."""
        self._send()
        self._transport.close()

    def uncork(self) -> Any:
        """Send what was written; return the transport itself."""
        self._send()
        return self._transport

    def _send(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
