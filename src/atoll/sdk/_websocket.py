"""A WebSocket client without I/O: bytes in, messages out. Both SDKs read and write for it."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from atoll.errors import ServiceNotRespondingError
from atoll.sdk._io import as_bytes

if TYPE_CHECKING:
    from websockets.frames import Frame

Message: TypeAlias = str | bytes

MAX_MESSAGE = 32 << 20
"""Bytes of one message from a service."""

GONE = 1006
"""Close code of a connection that ended without one."""


class WebSocketRefusedError(ServiceNotRespondingError):
    """The service answered the request for a WebSocket with something else.

    Attributes:
        status: of its answer.
        fields: of its answer.
        body: of its answer, as far as it came with the head.
    """

    status = 502
    fields: Sequence[tuple[str, str]] = ()
    body = b""


class Conversation:
    """One WebSocket from its handshake to its close.

    Args:
        target: path and query.
        fields: of the request, with ``Host``, without those of the handshake.
        subprotocols: in order of preference.
    """

    def __init__(
        self, target: str, fields: Iterable[tuple[str, str]], subprotocols: Sequence[str]
    ) -> None:
        from websockets.client import ClientProtocol
        from websockets.uri import WebSocketURI

        uri = WebSocketURI(False, "localhost", 80, "/", "")
        offered: Any = list(subprotocols) or None
        self._protocol = ClientProtocol(uri, subprotocols=offered, max_size=MAX_MESSAGE)
        request = self._protocol.connect()
        request.path = target
        del request.headers["Host"]
        for name, value in fields:
            request.headers[name] = value
        self._protocol.send_request(request)
        self._parts: list[bytes] = []
        self._text = False
        self.headers: dict[str, str] = {}
        self.open = False

    def outgoing(self) -> bytes:
        """Return what is to be sent now."""
        return b"".join(self._protocol.data_to_send())

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the service chose."""
        return self._protocol.subprotocol

    @property
    def close_code(self) -> int | None:
        """The code it was closed with, `GONE` if without one; None: it is open."""
        return self._protocol.close_code

    @property
    def close_reason(self) -> str:
        """The reason it was closed with."""
        return self._protocol.close_reason or ""

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that *data* completes; empty *data*: the connection has ended.

        Raises:
            WebSocketRefusedError: the service does not want a WebSocket here.
        """
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        messages: list[Message] = []
        for event in self._protocol.events_received():
            if hasattr(event, "status_code"):
                self._answered(event)
            elif (message := self._joined(cast("Frame", event))) is not None:
                messages.append(message)
        if not self.open and (not data or self._protocol.handshake_exc):
            self._refuse(0, [], b"")
        return messages

    def _answered(self, answer: Any) -> None:
        fields = [(name.lower(), value) for name, value in answer.headers.raw_items()]
        if self._protocol.handshake_exc:
            self._refuse(answer.status_code, fields, answer.body or b"")
        self.headers, self.open = dict(fields), True

    def _refuse(self, status: int, fields: list[tuple[str, str]], body: bytes) -> None:
        reason = str(self._protocol.handshake_exc or "the connection ended")
        error = WebSocketRefusedError(
            f"the service refused the WebSocket: {reason}", context={"status": status or None}
        )
        error.status, error.fields, error.body = status or 502, fields, bytes(body)
        raise error

    def _joined(self, frame: "Frame") -> Message | None:
        from websockets.frames import Opcode

        if frame.opcode in {Opcode.TEXT, Opcode.BINARY}:
            self._text = frame.opcode is Opcode.TEXT
        elif frame.opcode is not Opcode.CONT:
            return None
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            return None
        whole, self._parts = b"".join(self._parts), []
        return whole.decode("utf-8", "replace") if self._text else whole

    def send(self, message: Message) -> None:
        """Queue a message: text or bytes."""
        content = as_bytes(message)
        if isinstance(message, str):
            self._protocol.send_text(content)
        else:
            self._protocol.send_binary(content)

    def ping(self, data: bytes) -> None:
        """Queue a ping."""
        self._protocol.send_ping(as_bytes(data))

    def close(self, code: int | None, reason: str) -> None:
        """Queue the close."""
        from websockets.protocol import State

        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
