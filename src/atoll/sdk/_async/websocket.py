"""A WebSocket to a service inside a sandbox."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Self

from atoll.sdk import _aio
from atoll.sdk._async.raw import RawConnection
from atoll.sdk._websocket import Conversation, Message


class WebSocket:
    """An open WebSocket. Use it in an ``async with`` block, or close it.

    Iterate over it for its messages, text as `str` and binary as `bytes`, until either side
    closes; then `close_code` and `close_reason` say how. Pings are answered by themselves.
    """

    def __init__(self, connection: RawConnection, conversation: Conversation) -> None:
        self._connection = connection
        self._conversation = conversation
        self._messages: deque[Message] = deque()
        self._lock = _aio.Lock()
        self._reading = _aio.Lock()

    @classmethod
    async def open(
        cls,
        connection: RawConnection,
        target: str,
        fields: Iterable[tuple[str, str]],
        subprotocols: Sequence[str],
    ) -> "WebSocket":
        """Make the handshake.

        Raises:
            ServiceNotRespondingError: the service does not want a WebSocket there.
        """
        socket = cls(connection, Conversation(target, fields, subprotocols))
        try:
            while not socket._conversation.open:
                await socket._flush()
                socket._messages.extend(socket._conversation.feed(await connection.read()))
        except BaseException:
            await connection.aclose()
            raise
        return socket

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the service chose; None: none."""
        return self._conversation.subprotocol

    @property
    def headers(self) -> dict[str, str]:
        """The fields of the service's answer, by lower-case name."""
        return self._conversation.headers

    @property
    def close_code(self) -> int | None:
        """The code it was closed with, 1006 if without one; None: it is open."""
        return self._conversation.close_code

    @property
    def close_reason(self) -> str:
        """The reason it was closed with."""
        return self._conversation.close_reason

    async def send(self, message: Message) -> None:
        """Send text or bytes; wait while the service does not read."""
        self._conversation.send(message)
        await self._flush()

    async def ping(self, data: bytes = b"") -> None:
        """Send a ping."""
        self._conversation.ping(data)
        await self._flush()

    async def receive(self) -> Message | None:
        """Return the next message; None: it is closed."""
        async with self._reading:  # who closes it reads too, while somebody iterates over it
            while not self._messages:
                if self._connection.closed or self.close_code is not None:
                    await self._connection.aclose()
                    return None
                self._messages.extend(self._conversation.feed(await self._connection.read()))
                await self._flush()
            return self._messages.popleft()

    async def _flush(self) -> None:
        async with self._lock:
            if data := self._conversation.outgoing():
                await self._connection.write(data)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close it, and wait for the service to close as well; what still comes is dropped."""
        if self._connection.closed:
            return
        self._conversation.close(code, reason)
        try:
            await self._flush()
            while await self.receive() is not None:
                pass
        finally:
            await self._connection.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
