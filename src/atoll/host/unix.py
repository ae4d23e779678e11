"""Unix sockets at paths of any length.

An address holds 107 bytes; longer paths are reached through a descriptor of their directory.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

BACKLOG = 4_096
"""Connections the kernel queues for a listener; net.core.somaxconn may cut it."""

SEND_BUFFER = 1 << 19
"""Bytes that a socket of ours takes while the other end does not read. The kernel's default of 208 KiB
is less than one piece of a file: whole pieces take a third less of the engine's time, and of a
reader's half (measured on files of 1 GB)."""

_SO_SNDBUFFORCE = 32


@contextmanager
def address(path: Path) -> Iterator[str]:
    """Yield a short address of *path*, valid inside the block.

    Raises:
        FileNotFoundError: its directory does not exist.
    """
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def listen(path: Path) -> socket.socket:
    """Return a non-blocking listener at *path*, which nobody but this user may connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mask keeps others out from the first moment on, not only after a chmod.
    mask = os.umask(0o177)
    try:
        with address(path) as short:
            listener.bind(short)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def receiver(path: Path) -> socket.socket:
    """Return a socket of datagrams at *path*, which nobody but this user may send to."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    mask = os.umask(0o177)
    try:
        with address(path) as short:
            made.bind(short)
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(mask)
    return made


def send_files(path: Path, name: bytes, files: Sequence[int], timeout: float) -> None:
    """Send a datagram with descriptors to the socket at *path*.

    Args:
        path: of a `receiver`.
        name: what the datagram says.
        files: descriptors; the receiver gets copies.
        timeout: seconds until the receiver has room for it.

    Raises:
        OSError: nobody receives there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(timeout)
        with address(path) as short:
            sender.connect(short)
        socket.send_fds(sender, [name], files)


def connect(path: Path) -> socket.socket:
    """Return a non-blocking connection to the listener at *path*.

    Raises:
        OSError: nobody listens there, or its queue is full.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        with address(path) as short:
            connection.connect(short)
        enlarge_buffer(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def enlarge_buffer(connection: socket.socket) -> None:
    """Let *connection* take `SEND_BUFFER` bytes at once, or as many as we may have."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND_BUFFER)
    except PermissionError:  # only root gets more than net.core.wmem_max
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
