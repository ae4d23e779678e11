"""Where the gateway listens: sockets that the engine makes and keeps, so that ports stay its own."""

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

BACKLOG = 4_096

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class Ports(msgspec.Struct, frozen=True):
    """Where the gateway listens, on all addresses of the host; 0: nowhere."""

    connections: int
    names: int


class Sockets(NamedTuple):
    """Listening, for connections and the resolver's; and for UDP. None of a kind: nowhere."""

    connections: list[socket.socket]
    dns_tcp: list[socket.socket]
    dns_udp: list[socket.socket]

    @property
    def ports(self) -> Ports:
        """Where they listen."""
        return Ports(_port(self.connections), _port(self.dns_tcp))

    def close(self) -> None:
        """Close all of them."""
        for group in self:
            for one in group:
                one.close()


def listen(ports: Ports | None) -> Sockets:
    """Return listeners, at *ports* if they are free.

    Raises:
        OSError: the host has no port left.
    """
    if ports:
        with suppress(OSError):
            return _listen_at(ports.connections, ports.names)
    for _ in range(16):  # the TCP port that the kernel chose may be taken for UDP
        with suppress(OSError):
            return _listen_at(0, 0)
    return _listen_at(0, 0)


def _listen_at(connections: int, names: int) -> Sockets:
    made = Sockets([], [], [])
    try:
        made.connections.extend(_pair(socket.SOCK_STREAM, connections))
        made.dns_tcp.extend(_pair(socket.SOCK_STREAM, names))
        made.dns_udp.extend(_pair(socket.SOCK_DGRAM, _port(made.dns_tcp)))
    except BaseException:
        made.close()
        raise
    return made


def _pair(kind: socket.SocketKind, port: int) -> list[socket.socket]:
    """Return a socket for IPv4 and, where the host has it, one for IPv6 at the same port."""
    made = [_bound(socket.AF_INET, kind, "0.0.0.0", port)]
    if socket.has_ipv6:
        try:
            made.append(_bound(socket.AF_INET6, kind, "::", _port(made)))
        except OSError as error:
            if error.errno not in _NO_IPV6:
                made[0].close()
                raise
    return made


def _bound(family: int, kind: int, address: str, port: int) -> socket.socket:
    made = socket.socket(family, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, kind == socket.SOCK_STREAM)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address, port))
        if kind == socket.SOCK_STREAM:
            made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _port(group: Sequence[socket.socket]) -> int:
    return int(group[0].getsockname()[1]) if group else 0
