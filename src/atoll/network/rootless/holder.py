"""The process that makes network namespaces for sandboxes of its user, and keeps them.

It is root of a user namespace that has one user, which owns the network namespaces: sandboxes run in
user namespaces below it, so that nobody inside may change addresses or packet filters. It outlives
the engine, and keeps the listeners of each namespace: while the gateway is replaced, connections wait
at them. Run without site packages, so it takes 9 MB; one thread, one question at a time.

A question is one connection of the unix socket that it inherits: a JSON object, then an end; so is the
answer, of which listeners are descriptors. Only its user can connect.
"""

import fcntl
import json
import os
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from atoll.host import linux

CONTROL: Final = 3
"""Descriptor of the listening socket it inherits."""

UNUSED_TIMEOUT: Final = 60.0
"""Seconds until a holder ends that nobody has asked anything: its engine died while it started it."""

ASK_TIMEOUT: Final = 10.0
"""Seconds that one question may take to come."""

MAX_QUESTION: Final = 1 << 16

PORTS: Final = (65_053, 65_054)
"""Ports of names and of connections inside: above those the kernel gives to clients."""

_SETTINGS: Final = {"ip_unprivileged_port_start": "0", "ping_group_range": "0 0"}
_IFF_UP: Final = 1
_IP_PKTINFO: Final = 8
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914


class Namespace(NamedTuple):
    """A network namespace: its descriptor, and its listeners (connections, names, names by UDP)."""

    fd: int
    listeners: tuple[socket.socket, ...]

    def close(self) -> None:
        """Let go of it; it is gone when no sandbox is in it."""
        os.close(self.fd)
        for listener in self.listeners:
            listener.close()

    @property
    def ports(self) -> list[int]:
        """Ports of connections and of names."""
        return [int(listener.getsockname()[1]) for listener in self.listeners[:2]]


class Holder:
    """All namespaces; those without an owner are called "" and wait for one."""

    def __init__(self) -> None:
        self._namespaces: dict[int, Namespace] = {}
        self._owners: dict[int, str] = {}

    def make(self) -> dict[str, Any]:
        """Make a namespace with loopback and listeners; nothing leaves it yet."""
        made = make_namespace()
        self._namespaces[made.fd] = made
        self._owners[made.fd] = ""
        return {"fd": made.fd, "ports": made.ports}

    def give(self, fd: int, owner: str) -> dict[str, Any]:
        """Say whose a namespace is."""
        self._owners[self._namespaces[fd].fd] = owner
        return {}

    def drop(self, fd: int) -> dict[str, Any]:
        """Let go of a namespace."""
        if found := self._namespaces.pop(fd, None):
            del self._owners[fd]
            found.close()
        return {}

    def listeners(self, fd: int) -> list[int]:
        """Return the descriptors of the listeners of one."""
        return [listener.fileno() for listener in self._namespaces[fd].listeners]

    def answer(self, question: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Do what is asked; a failure is an answer, too."""
        op = question.pop("op")
        known: dict[str, Callable[..., dict[str, Any]]] = {
            "make": self.make,
            "give": self.give,
            "drop": self.drop,
            "list": self.list,
        }
        try:
            if op == "listeners":
                return {}, self.listeners(**question)
            return known[op](**question), []
        except OSError as error:
            return {"error": f"{error.filename or 'network namespace'}: {error.strerror}"}, []
        except KeyError as error:
            return {"error": f"there is no {error}"}, []

    def list(self) -> dict[str, Any]:
        """Return descriptor, owner and ports of each."""
        found = self._namespaces.values()
        return {"held": [(one.fd, self._owners[one.fd], one.ports) for one in found]}


def make_namespace() -> Namespace:
    """Make a namespace with loopback up, the calling thread's from now on.

    Raises:
        OSError: the kernel refuses; the thread may be in a new namespace all the same.
    """
    linux.unshare(linux.CLONE_NEWNET)
    for name, value in _SETTINGS.items():
        Path("/proc/sys/net/ipv4", name).write_text(value)
    _bring_loopback_up()
    fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    opened: list[socket.socket] = []
    try:
        names, connections = PORTS
        for kind, port in (
            (socket.SOCK_STREAM, connections),
            (socket.SOCK_STREAM, names),
            (socket.SOCK_DGRAM, names),
        ):
            opened.append(socket.socket(socket.AF_INET, kind))
            opened[-1].bind(("127.0.0.1", port))
            if kind is socket.SOCK_STREAM:
                opened[-1].listen(socket.SOMAXCONN)
            else:  # the gateway asks for it too, too late for what waits by then
                opened[-1].setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
    except BaseException:
        Namespace(fd, tuple(opened)).close()
        raise
    return Namespace(fd, tuple(opened))


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_one:
        asked = struct.pack("16sh22x", b"lo", 0)
        found = fcntl.ioctl(any_one, _SIOCGIFFLAGS, asked)
        (flags,) = struct.unpack_from("16xh", found)
        fcntl.ioctl(any_one, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))


def become_root() -> None:
    """Become root of a user namespace that knows no other user.

    Raises:
        OSError: the host does not let this user make one.
    """
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        Path("/proc/self", name).write_text(text)


def main() -> None:
    """Answer questions until somebody kills it."""
    become_root()
    holder = Holder()
    with socket.socket(fileno=CONTROL) as control:
        control.settimeout(UNUSED_TIMEOUT)
        while True:
            try:
                connection, _ = control.accept()
            except TimeoutError:
                sys.exit("nobody asked for anything")
            control.settimeout(None)
            with connection, suppress(OSError, ValueError):
                _serve(holder, connection)


def _serve(holder: Holder, connection: socket.socket) -> None:
    connection.settimeout(ASK_TIMEOUT)
    told = b""
    while chunk := connection.recv(MAX_QUESTION):
        told += chunk
        if len(told) > MAX_QUESTION:
            return
    answer, files = holder.answer(json.loads(told))
    data = json.dumps(answer).encode()
    if files:
        socket.send_fds(connection, [data], files)
    else:
        connection.sendall(data)


if __name__ == "__main__":
    main()
