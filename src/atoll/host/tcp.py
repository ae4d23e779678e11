"""Connections by TCP to what answers at once or not at all."""

import asyncio
import socket
from typing import Final

DIAL: Final = 5.0
"""Seconds until an address that does not answer counts as dead."""


async def connect(address: str, port: int, timeout: float = DIAL) -> socket.socket:
    """Return a non-blocking connection that sends what it is given at once.

    Args:
        address: an IPv4 or IPv6 address; names are not resolved.
        port: TCP port.
        timeout: seconds until an address that does not answer counts as dead.

    Raises:
        ConnectionError: nobody listens there, or nothing answers.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(timeout):
            await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except TimeoutError as error:
        connection.close()
        raise ConnectionRefusedError(f"{address} does not answer") from error
    except BaseException:
        connection.close()
        raise
    return connection
