"""A WebSocket to a service inside a sandbox."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Self

from atoll.sdk import _io
from atoll.sdk._sync.raw import RawConnection
from atoll.sdk._websocket import Conversation, Message


class WebSocket:
    """An open WebSocket. Use it in an ``with`` block, or close it.

    Iterate over it for its messages, text as `str` and binary as `bytes`, until either side
    closes; then `close_code` and `close_reason` say how. Pings are answered by themselves.
    """

    def __init__(self, connection: RawConnection, conversation: Conversation) -> None:
        self._connection = connection
        self._conversation = conversation
        self._messages: deque[Message] = deque()
        self._lock = _io.Lock()
        self._reading = _io.Lock()

    @classmethod
    def open(
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
                socket._flush()
                socket._messages.extend(socket._conversation.feed(connection.read()))
        except BaseException:
            connection.close()
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

    def send(self, message: Message) -> None:
        """Send text or bytes; wait while the service does not read."""
        self._conversation.send(message)
        self._flush()

    def ping(self, data: bytes = b"") -> None:
        """Send a ping."""
        self._conversation.ping(data)
        self._flush()

    def receive(self) -> Message | None:
        """Return the next message; None: it is closed."""
        with self._reading:  # who closes it reads too, while somebody iterates over it
            while not self._messages:
                if self._connection.closed or self.close_code is not None:
                    self._connection.close()
                    return None
                self._messages.extend(self._conversation.feed(self._connection.read()))
                self._flush()
            return self._messages.popleft()

    def _flush(self) -> None:
        with self._lock:
            if data := self._conversation.outgoing():
                self._connection.write(data)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close it, and wait for the service to close as well; what still comes is dropped."""
        if self._connection.closed:
            return
        self._conversation.close(code, reason)
        try:
            self._flush()
            while self.receive() is not None:
                pass
        finally:
            self._connection.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        message = self.receive()
        if message is None:
            raise StopIteration
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
