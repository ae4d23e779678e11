"""Messages between the agent and a kernel, on the agent's side. Pure.

The peer runs user code: what it announces is bounded before it is kept, and anything malformed is
the end of that kernel, never of more.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

HEADER: Final = struct.Struct(">cII")

MAX_RESULT: Final = 64 << 20
"""Bytes of one result. It is passed on in pieces as it comes: what user code announces takes no
memory of the agent's."""

MAX_BODY: Final = 4 << 20
"""Bytes of any other message."""

PLAN: Final = b"p"
RUN: Final = b"r"
DESCRIBE: Final = b"v"
ASSIGN: Final = b"s"

KEEPER: Final = b"h"
READY: Final = b"k"
RESULT: Final = b"R"
DONE: Final = b"D"
REPLY: Final = b"V"
EXIT: Final = b"X"

_KNOWN: Final = frozenset({KEEPER, READY, RESULT, DONE, REPLY, EXIT})


class Message(NamedTuple):
    """One message of a kernel, or (of a result) a piece of one."""

    kind: bytes
    number: int
    body: bytes
    length: int = 0  # of the whole
    first: bool = True
    last: bool = True


class MessageError(ValueError):
    """The kernel sent something that is no message: user code wrote to the descriptor."""


def encode(kind: bytes, number: int, body: Any) -> bytes:
    """Return a message with *body* as JSON."""
    data = json.dumps(body).encode()
    return HEADER.pack(kind, number, len(data)) + data


def decode(message: Message) -> dict[str, Any]:
    """Return the JSON object in a message.

    Raises:
        MessageError: there is none.
    """
    try:
        found = json.loads(message.body)
    except (ValueError, RecursionError) as error:
        raise MessageError(str(error)) from error
    if not isinstance(found, dict):
        raise MessageError("not an object")
    return found


class Decoder:
    """Feed bytes as they arrive, iterate over what is complete of them."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._open: tuple[int, int, int] | None = None  # a result: number, length, bytes to come

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield every message completed by *data*, and of results what has come.

        Raises:
            MessageError: it is not one, or too large.
        """
        self._buffer += data
        while self._buffer or self._open:
            message = self._piece(*self._open) if self._open else self._message()
            if message is None:
                return
            yield message

    def _message(self) -> Message | None:
        if len(self._buffer) < HEADER.size:
            return None
        kind, number, length = HEADER.unpack_from(self._buffer)
        if kind not in _KNOWN or length > (MAX_RESULT if kind == RESULT else MAX_BODY):
            raise MessageError(f"kind {kind!r} of {length} bytes")
        if kind == RESULT:
            del self._buffer[: HEADER.size]
            self._open = number, length, length
            return self._piece(number, length, length)
        end = HEADER.size + length
        if len(self._buffer) < end:
            return None
        body = self._cut(end)[HEADER.size :]
        return Message(kind, number, body, length)

    def _piece(self, number: int, length: int, left: int) -> Message | None:
        if not self._buffer and left:
            return None
        body = self._cut(min(left, len(self._buffer)))
        rest = left - len(body)
        self._open = (number, length, rest) if rest else None
        return Message(RESULT, number, body, length, first=left == length, last=not rest)

    def _cut(self, size: int) -> bytes:
        found = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return found
