"""The engine's listening sockets, its lock, and what to say when they cannot be had."""

import errno
import fcntl
import os
import resource
import socket
import stat
from contextlib import suppress
from pathlib import Path

from atoll.errors import (
    InvalidConfigError,
    PermissionDeniedError,
    PortInUseError,
    ResourceBusyError,
    SandboxError,
)
from atoll.host import unix

MAX_PATH = 107
"""Bytes of a unix socket's address."""


MAX_PORT = 65_535

MAX_TCP = 4_096
"""Connections of the TCP listener at most, where descriptors allow it."""

KEEPALIVE = {
    "TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 600_000
}  # fmt: skip
"""When the kernel asks whether the other end is there (seconds of silence, seconds between, how
often), and how many milliseconds sent bytes may stay unread: a host that vanished costs a
connection for two minutes. Connections inherit it from the listener."""

TCP_BACKLOG = 256
"""Connections accepted at once, before any of them can be refused."""


def lock(state_dir: Path) -> int:
    """Return a descriptor that holds the lock of *state_dir* until it is closed.

    The process id in the file is for people; the lock is the kernel's.

    Raises:
        ResourceBusyError: another engine has it.
        PermissionDeniedError: the directory cannot be used.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(state_dir / "engine.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PermissionDeniedError(
            f"the state directory {state_dir} cannot be used: {error.strerror}",
            context={"path": str(state_dir)},
            suggestion="run as root, or choose a directory of yours with --state-dir",
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        pid = os.pread(fd, 32, 0).decode(errors="replace").strip()
        os.close(fd)
        raise ResourceBusyError(
            f"another engine (process {pid or 'unknown'}) uses {state_dir}",
            context={"path": str(state_dir), "pid": pid},
            suggestion="talk to that engine, or choose another --state-dir",
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def replacing(path: Path) -> socket.socket:
    """Return a listening unix socket of mode 0600; a stale one of the same name is replaced.

    The caller holds the lock of the state directory, so nobody serves at *path*.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InvalidConfigError(
                f"{path} exists and is not a socket", context={"path": str(path)}
            )
        path.unlink()
    return unix.listen(path)


def tcp(host: str, port: int, *, keys: bool) -> socket.socket:
    """Return a listening TCP socket.

    Args:
        keys: whether the engine has keys; without them only loopback is allowed.

    Raises:
        PortInUseError: names the port, and the process that has it where that can be told.
        InvalidConfigError: not a port, not an address of this host, or not loopback without keys.
    """
    if not 0 <= port <= MAX_PORT:  # the resolver would take it modulo 65,536
        raise InvalidConfigError(
            f"there is no port {port}", context={"host": host, "port": port},
            suggestion=f"choose one from 1 to {MAX_PORT}, or 0 for any",
        )  # fmt: skip
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not keys and not _is_loopback(str(address[0])):
            raise InvalidConfigError(
                f"the engine has no keys, so it does not listen on {host}",
                context={"host": host},
                suggestion="set ATOLL_SERVER_API_KEY, or listen on 127.0.0.1",
            )
        listener = socket.socket(family, kind)
    except socket.gaierror as error:
        raise InvalidConfigError(
            f"{host!r} is not an address: {error.strerror}", context={"host": host}
        ) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        listener.bind(address)
        listener.listen(unix.BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _bind_error(host, port, error) from error
    return listener


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine reaches *listener*."""
    return _is_loopback(str(listener.getsockname()[0]))


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def tcp_connections() -> int:
    """Return how many connections the TCP listener may have; raise the soft limit to the hard one.

    A quarter of all descriptors: strangers can open connections there, and agents, the store and
    the unix socket must have theirs whatever strangers do.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(MAX_TCP, hard // 4)


def _bind_error(host: str, port: int, error: OSError) -> SandboxError:
    if error.errno == errno.EADDRINUSE:
        owner = owner_of(port)
        return PortInUseError(
            f"port {port} on {host} is taken" + (f" by {owner}" if owner else ""),
            context={"host": host, "port": port, "process": owner},
            suggestion="choose another with --port, or 0 for any",
        )
    return InvalidConfigError(
        f"cannot listen on {host}:{port}: {error.strerror}",
        context={"host": host, "port": port},
    )


def owner_of(port: int) -> str | None:
    """Return "name (pid)" of the process that listens on TCP *port*, where we may see it."""
    inodes = set[str]()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and inodes & _links(process / "fd"):
            with suppress(OSError):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return None


def _links(directory: Path) -> set[str]:
    found = set[str]()
    with suppress(OSError):
        for entry in directory.iterdir():
            with suppress(OSError):
                found.add(str(entry.readlink()))
    return found
