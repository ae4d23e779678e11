"""Unix sockets at paths of any length.

An address holds 107 bytes; longer paths are reached through a descriptor of their directory.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BACKLOG = 4_096
"""Connections the kernel queues for a listener; net.core.somaxconn may cut it."""


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
    except BaseException:
        connection.close()
        raise
    return connection
