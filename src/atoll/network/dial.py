"""Connections to servers inside a sandbox, also those on its 127.0.0.1 and ::1.

A socket belongs to the namespace it was made in, so one is made inside and used from outside.
"""

import asyncio
import ipaddress
import socket
from pathlib import Path

from atoll.network import netns


async def connect(namespace: Path | None, address: str, port: int) -> socket.socket:
    """Return a non-blocking TCP connection to *address* as seen inside *namespace*.

    Args:
        namespace: path of a network namespace (a slot's, or ``/proc/<pid>/ns/net``); None: the
            one this process is in.
        address: an IPv4 or IPv6 address; names are not resolved.
        port: TCP port.

    Raises:
        FileNotFoundError: the namespace is gone.
        ConnectionError: nobody listens there.
    """
    six = ipaddress.ip_address(address).version == 6
    if namespace is None:
        made = _socket(six=six)
    else:
        made = await asyncio.to_thread(netns.call_in, namespace, lambda: _socket(six=six))
    try:
        await asyncio.get_running_loop().sock_connect(made, (address, port))
    except BaseException:
        made.close()
        raise
    return made


def _socket(*, six: bool) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
    made.setblocking(False)
    return made
