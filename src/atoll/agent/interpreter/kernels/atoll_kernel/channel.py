"""Messages between kernel and agent: kind, number of the execution, length, bytes; some with files."""

from __future__ import annotations

import array
import json
import socket
import struct
import threading
from typing import Any, NamedTuple

HEADER = struct.Struct(">cII")
MAX_FDS = 4

# From the agent.
PLAN = b"p"  # JSON: directory and environment; comes first
RUN = b"r"  # JSON: code, env; with the descriptors for 1 and 2
DESCRIBE = b"v"  # tell all variables
ASSIGN = b"s"  # JSON: variables to set

# To the agent.
KEEPER = b"h"  # the process that waits for the kernel says hello
READY = b"k"  # the kernel does; JSON: why it cannot, if so
RESULT = b"R"  # one JSON object: a result, a displayed value, an error
DONE = b"D"  # JSON: how the execution ended
REPLY = b"V"  # JSON: answer to DESCRIBE and ASSIGN
EXIT = b"X"  # JSON: wait status of the kernel


class Message(NamedTuple):
    """One received message."""

    kind: bytes
    number: int
    body: bytes
    fds: list[int]


class Channel:
    """Blocking messages over a stream socket. Threads may send at once."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._lock = threading.Lock()

    def send(self, kind: bytes, number: int, body: bytes) -> None:
        """Send one message whole."""
        with self._lock:
            self.sock.sendall(HEADER.pack(kind, number, len(body)) + body)

    def send_json(self, kind: bytes, number: int, body: Any) -> None:
        """Send one message with JSON in it."""
        self.send(kind, number, json.dumps(body, allow_nan=False).encode())

    def receive(self) -> Message | None:
        """Wait for the next message; None when the agent is gone."""
        head, fds = self._read(HEADER.size)
        if len(head) < HEADER.size:
            return None
        kind, number, length = HEADER.unpack(head)
        body, more = self._read(length)
        return Message(kind, number, body, fds + more) if len(body) == length else None

    def _read(self, size: int) -> tuple[bytes, list[int]]:
        parts, fds = [], array.array("i")
        while size:
            data, ancillary, _, _ = self.sock.recvmsg(
                min(size, 1 << 20), socket.CMSG_SPACE(MAX_FDS * fds.itemsize)
            )
            for _, _, payload in ancillary:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
            if not data:
                break
            parts.append(data)
            size -= len(data)
        return b"".join(parts), fds.tolist()
