"""Connections to servers inside where no socket can be made there: the agent carries their bytes.

What is handed out is one end of a socket pair, so that whoever uses a connection need not know how
it got there. Nothing queues here but what the kernel's buffers and one read hold.
"""

import asyncio
import select
import socket
from contextlib import suppress
from functools import partial
from typing import Any

from atoll.engine.link.link import Endpoint, Link, LinkError
from atoll.errors import SandboxError, ServiceNotRespondingError
from atoll.wire import frames
from atoll.wire.agent import CONNECT_TIMEOUT
from atoll.wire.frames import Kind

LINGER = 15.0
"""Seconds that what was sent on a connection has to reach the server once the sender has closed."""

MARGIN = 5.0
"""Seconds beyond a connection's own limit for the agent to answer."""


async def connect(endpoint: Endpoint, address: str, port: int) -> socket.socket:
    """Return a non-blocking connection to *address* as seen inside the sandbox.

    Raises:
        ConnectionError: nobody listens there, or the sandbox is gone.
        SandboxError: the agent carries no more connections.
    """
    header = {
        "op": "port.connect", "address": address, "port": port, "timeout": CONNECT_TIMEOUT,
    }  # fmt: skip
    try:
        link = await endpoint.open(header)
        try:
            await link.reply(CONNECT_TIMEOUT + MARGIN)
        except BaseException:
            link.close()
            raise
    except (LinkError, ServiceNotRespondingError) as error:
        raise ConnectionRefusedError(str(error)) from error
    outer, inner = socket.socketpair()
    for one in (outer, inner):
        one.setblocking(False)
    task = asyncio.create_task(carry(link, inner))
    endpoint.tasks.add(task)
    task.add_done_callback(endpoint.tasks.discard)
    return outer


async def carry(link: Link, inner: socket.socket) -> None:
    """Carry bytes between *inner* and the agent until both sides have ended or one is gone."""
    loop = asyncio.get_running_loop()
    closed = loop.create_future()
    watch = select.epoll()
    # Of all events only EPOLLHUP: the other end is closed, not only its sending side.
    watch.register(inner, 0)
    loop.add_reader(watch.fileno(), partial(_note, closed))
    up, down = asyncio.create_task(_up(link, inner)), asyncio.create_task(_down(link, inner))
    try:
        try:
            await _until_over(up, down, closed)
        finally:
            loop.remove_reader(watch.fileno())
            watch.close()
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            inner.close()
        await link.part(LINGER)
    finally:
        link.close()


async def _until_over(
    up: asyncio.Task[bool], down: asyncio.Task[bool], closed: asyncio.Future[None]
) -> None:
    """Wait until both ways have ended, one has broken, or the user has closed its end."""
    pending: set[asyncio.Future[Any]] = {up, down, closed}
    while pending & {up, down} and not closed.done():
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if any(not task.result() for task in (up, down) if task.done()):
            return
    await asyncio.wait({up}, timeout=LINGER)


def _note(closed: asyncio.Future[None]) -> None:
    if not closed.done():
        closed.set_result(None)


async def _up(link: Link, inner: socket.socket) -> bool:
    """Send the agent what comes from *inner*; return False when that cannot be."""
    loop = asyncio.get_running_loop()
    with suppress(LinkError, OSError):
        while data := await loop.sock_recv(inner, frames.CHUNK):
            await link.send(Kind.DATA, data)
        await link.send(Kind.END)
        return True
    return False


async def _down(link: Link, inner: socket.socket) -> bool:
    """Write to *inner* what the agent sends; return False when that cannot be."""
    loop = asyncio.get_running_loop()
    with suppress(LinkError, OSError, SandboxError):
        async for frame in link.frames(None, {Kind.END}, {Kind.DATA, Kind.END}):
            try:
                await loop.sock_sendall(inner, frame.payload if frame.kind == Kind.DATA else b"")
            except OSError:  # closed by its user; what that sent before still goes its way
                return True
        inner.shutdown(socket.SHUT_WR)
        return True
    return False
