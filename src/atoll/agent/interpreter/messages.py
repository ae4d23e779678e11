"""Messages between the agent and a kernel, on the agent's side. Pure.

The peer runs user code: what it announces is bounded before it is kept, and anything malformed is
the end of that kernel, never of more.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

HEADER: Final = struct.Struct(">cII")

MAX_BODY: Final = 64 << 20
"""Bytes of one message. A kernel keeps its results below a quarter of this."""

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
    """One message of a kernel."""

    kind: bytes
    number: int
    body: bytes


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
    """Feed bytes as they arrive, iterate over the messages that are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield every message completed by *data*.

        Raises:
            MessageError: it is not one, or larger than `MAX_BODY`.
        """
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self._buffer)
            if kind not in _KNOWN or length > MAX_BODY:
                raise MessageError(f"kind {kind!r} of {length} bytes")
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            body = bytes(memoryview(self._buffer)[HEADER.size : end])
            del self._buffer[:end]
            yield Message(kind, number, body)
