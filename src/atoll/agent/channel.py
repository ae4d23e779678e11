"""Messages between processes of the agent: one JSON object and some descriptors per packet.

A packet is small; a message that is not (1 MB of command text) travels as a memory file whose
descriptor comes first. So a sender never waits and never sends half a message.
"""

import errno
import json
import os
import socket
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from atoll.agent.descriptors import absorb, spill

INLINE = 32 << 10
"""Bytes sent in the packet itself: well below the smallest default of net.core.wmem_default."""

MAX_FDS = 16


class Message(NamedTuple):
    """One received message; its descriptors belong to the receiver."""

    body: dict[str, Any]
    fds: list[int]


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected ends that keep packets apart and show the end of the peer."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, body: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send *body* and duplicates of *fds*.

    Raises:
        OSError: the peer is gone, or (on a non-blocking socket) takes no more packets.
    """
    data = json.dumps(body).encode()
    if len(data) <= INLINE:
        _send(sock, b"=" + data, fds)
        return
    file = spill(data)
    try:
        _send(sock, b">", (file, *fds))
    finally:
        os.close(file)


def receive(sock: socket.socket) -> Message | None:
    """Return the next message, or None when the peer is gone.

    Raises:
        OSError: none is there on a non-blocking socket, or its descriptors were lost on the way.
    """
    data, fds = receive_bytes(sock, INLINE + 64)
    if not data:
        return None
    if data[:1] == b">":
        if not fds:
            raise OSError(errno.EBADMSG, "a message came without its file")
        data = b"=" + absorb(fds.pop(0))
    return Message(json.loads(data[1:]), fds)


def receive_bytes(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Return up to *size* bytes and the descriptors that came with them, closed on exec.

    Raises:
        OSError: nothing could be read, or this process has no room for all the descriptors.
    """
    fds = array("i")
    room = socket.CMSG_SPACE(MAX_FDS * fds.itemsize)
    data, ancillary, flags, _ = sock.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    if flags & socket.MSG_CTRUNC:
        for fd in fds:
            os.close(fd)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return data, fds.tolist()


def _send(sock: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
    sock.sendmsg([data], rights)
