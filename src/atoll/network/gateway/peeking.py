"""Looks at what a client sends without taking it away.

So the bytes are still there for whoever goes on: a TLS server of ours, or the server outside.
The kernel is told to wake us only when more than what was seen has come (SO_RCVLOWAT): a client that
sends one byte a second costs one wake-up a second.
"""

import asyncio
import select
import socket
from collections.abc import Mapping


async def readable(connection: socket.socket, beyond: int = 0) -> None:
    """Return when more than *beyond* bytes are there, or the other side has ended."""
    await first_readable({connection: beyond})


async def first_readable(connections: Mapping[socket.socket, int]) -> None:
    """Return when one of *connections* has more bytes than stand beside it, or has ended."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    for connection, beyond in connections.items():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, beyond + 1)
        loop.add_reader(connection, wake)
    try:
        await ready
    finally:
        for connection in connections:
            loop.remove_reader(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def is_readable(connection: socket.socket, beyond: int = 0) -> bool:
    """Tell whether more than *beyond* bytes are there, or the other side has ended."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, beyond + 1)
    try:
        asked = select.poll()
        asked.register(connection, select.POLLIN)
        return bool(asked.poll(0))
    finally:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def peek(connection: socket.socket, limit: int) -> bytes:
    """Return what is there, at most *limit* bytes; empty: nothing, or the end.

    Raises:
        ConnectionError: the connection is lost.
    """
    try:
        return connection.recv(limit, socket.MSG_PEEK)
    except BlockingIOError:
        return b""
