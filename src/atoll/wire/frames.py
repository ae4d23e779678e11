"""Length-prefixed frames: the one encoding of every stream of Atoll.

A frame is ``type (1 byte) · length (4 bytes, big endian) · payload``. The same frames travel
between engine and agent and, unchanged, between engine and client
(``application/vnd.atoll.frames``), so output bytes are never re-encoded on the way.

The decoder is fed by peers that may be hostile: it never buffers more than one frame of at most
`MAX_FRAME` bytes and rejects a longer announcement before any of its payload arrives.
"""

import json
import struct
from collections.abc import Generator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

CONTENT_TYPE = "application/vnd.atoll.frames"

MAX_FRAME = 8 << 20
"""Largest payload in bytes: a HEADER with 1 MB of command text and a large environment fits many
times over. Senders cut bodies and output into chunks of about `CHUNK`."""

CHUNK = 1 << 16
"""Usual size of one output chunk in bytes: the default capacity of a Linux pipe."""

_HEADER = struct.Struct(">BI")
_POSITION = struct.Struct(">QQ")


class Kind(IntEnum):
    """Frame types. Numbers are part of the protocol: only ever added, never changed."""

    HEADER = 1  # JSON: the request that opens a connection or a request body
    REPLY = 2  # JSON: result of a unary operation; ends it
    ERROR = 3  # JSON: error envelope; ends the operation
    STARTED = 4  # JSON: the command runs
    STDOUT = 5  # position + bytes
    STDERR = 6  # position + bytes
    STDIN = 7  # bytes
    STDIN_CLOSE = 8  # empty
    RESIZE = 9  # JSON: cols, rows
    SIGNAL = 10  # JSON: signal, tree
    CANCEL = 11  # empty: kill the whole tree now
    EXITED = 12  # JSON: how the command ended; ends the operation
    GAP = 13  # JSON: output that is no longer kept (from_offset, to_offset, reason)
    HEARTBEAT = 14  # empty: the operation is alive
    DATA = 15  # bytes of a file or archive
    END = 16  # JSON: end of a body, with what is known only then
    EVENT = 17  # JSON: one event of a watch or log
    RESULT = 18  # position + bytes of a stream of JSON lines: what code shows


class Frame(NamedTuple):
    """One decoded frame."""

    kind: int
    payload: bytes


class Output(NamedTuple):
    """Payload of a STDOUT or STDERR frame.

    `seq` numbers the frames of one operation from 0; `offset` is the position of the first byte
    in the operation's combined output (stdout and stderr in the order they were read).
    """

    seq: int
    offset: int
    data: bytes


class FrameError(ValueError):
    """The peer sent something that is not a frame. The connection is of no more use."""


def encode(kind: int, payload: bytes = b"") -> bytes:
    """Return one frame; raise `FrameError` when *payload* is over `MAX_FRAME` bytes."""
    if len(payload) > MAX_FRAME:
        raise FrameError(f"payload of {len(payload)} bytes is over the limit of {MAX_FRAME}")
    return _HEADER.pack(kind, len(payload)) + payload


def encode_head(kind: int, length: int) -> bytes:
    """Return what stands before a payload of *length* bytes."""
    return _HEADER.pack(kind, length)


def encode_json(kind: int, body: Mapping[str, Any]) -> bytes:
    """Return a frame whose payload is *body* as a JSON object."""
    return encode(kind, json.dumps(body, separators=(",", ":")).encode())


def encode_output(kind: int, seq: int, offset: int, data: bytes) -> bytes:
    """Return a STDOUT or STDERR frame."""
    return encode(kind, _POSITION.pack(seq, offset) + data)


def check_output(payload: bytes) -> None:
    """Raise `FrameError` when the payload of a STDOUT or STDERR frame is too short to be one."""
    if len(payload) < _POSITION.size:
        raise FrameError("output frame without a position")


def decode_output(payload: bytes) -> Output:
    """Take the payload of a STDOUT or STDERR frame apart; raise as `check_output`."""
    check_output(payload)
    seq, offset = _POSITION.unpack_from(payload)
    return Output(seq, offset, payload[_POSITION.size :])


class Decoder:
    """Feed bytes as they arrive, iterate over the frames that are complete."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._max_frame = max_frame

    def feed(self, data: bytes) -> Generator[Frame, None, None]:
        """Yield every frame completed by *data*; raise `FrameError` on an oversized one.

        A frame that is whole in *data* is copied once; only what is cut goes through the buffer.
        """
        at = 0
        try:
            while self._buffer:
                part = data[at : at + self._missing()]
                self._buffer += part
                at += len(part)
                if self._missing():
                    if not part:
                        return
                    continue
                frame = Frame(self._buffer[0], bytes(memoryview(self._buffer)[_HEADER.size :]))
                self._buffer.clear()
                yield frame
            while len(data) - at >= _HEADER.size:
                kind, length = _HEADER.unpack_from(data, at)
                self._check(length)
                start, end = at + _HEADER.size, at + _HEADER.size + length
                if len(data) < end:
                    return
                at = end
                yield Frame(kind, data[start:end])
        finally:
            self._buffer += data[at:]

    def _missing(self) -> int:
        """Return how many bytes the cut frame lacks: of its head, then of all of it."""
        if len(self._buffer) < _HEADER.size:
            return _HEADER.size - len(self._buffer)
        length = _HEADER.unpack_from(self._buffer)[1]
        self._check(length)
        return _HEADER.size + int(length) - len(self._buffer)

    def _check(self, length: int) -> None:
        if length > self._max_frame:
            raise FrameError(f"frame of {length} bytes is over {self._max_frame}")

    def take_rest(self) -> bytes:
        """Return the bytes of an incomplete frame and forget them: somebody else reads on."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    @property
    def pending(self) -> int:
        """Bytes of an incomplete frame; not zero at the end of a stream means it was cut."""
        return len(self._buffer)
