"""Connections that the gateway makes.

What may be connected to is decided by the policy. Here is one thing more: never an address that
this host has at this moment, whatever the engine told when it last looked.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

CONNECT_TIMEOUT = 10.0
"""Seconds until a server that does not answer counts as gone."""


class OwnAddress(OSError):  # noqa: N818  # a state of the address
    """It is an address of this host."""


def is_own(address: str) -> bool:
    """Tell whether the host has *address*: only then can a socket be bound to it."""
    six = ":" in address
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


class Dialer:
    """Makes connections.

    Args:
        own: tells whether this host has an address.
        trust: whom servers' certificates are checked by.
    """

    def __init__(self, trust: ssl.SSLContext, own: Callable[[str], bool] = is_own) -> None:
        self._own = own
        self.trust = trust

    async def connect(self, address: str, port: int) -> socket.socket:
        """Return a non-blocking connection.

        Raises:
            OSError: nobody answers there, or it is an address of this host.
        """
        if self._own(address):
            raise OwnAddress("address of this host")
        six = ":" in address
        made = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await asyncio.get_running_loop().sock_connect(made, (address, port))
        except BaseException:
            made.close()
            raise
        return made


def reason(error: Exception) -> str:
    """Return why a connection could not be made, for the log."""
    if isinstance(error, TimeoutError):
        return "the server does not answer"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS with the server failed: {error.reason}"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
