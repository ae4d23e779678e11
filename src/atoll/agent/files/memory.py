"""Changes to files that live in memory: whose limit they count against, and what its end means.

What is written to a tmpfs is memory of who wrote it, until it is deleted. Written by the agent it
would fill the agent's own small share and end the agent. So a process that is about to write to
one moves into the commands' cgroup first, which is what limits the sandbox.

The kernel answers a full cgroup with a kill. File operations are the first to be killed there
(`children.FIRST_TO_GO`), before any command; a guard that stays behind turns that into NO_SPACE.
"""

import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from atoll import errors
from atoll.agent import kernel
from atoll.agent.files import mounted, pathnames
from atoll.agent.files.requests import Fields
from atoll.wire import frames
from atoll.wire.frames import Kind

_IN_MEMORY: Final = frozenset({0x0102_1994, 0x8584_58F6})  # tmpfs, ramfs
_WRITES: Final[Mapping[str, str]] = {
    "fs.write_file": "path",
    "fs.mkdir": "path",
    "fs.copy_file": "target",
    "fs.move_file": "target",
}


def takes_memory(header: Mapping[str, Any]) -> bool:
    """Tell whether an operation may fill memory that outlives it.

    An upload always may: its members can lie on mounts inside its target, and links lead there. A
    backup is put back in one place that no link leads to; on a disk it takes a process of 13 MB for
    as long as it runs, which many sandboxes do not have to spare. A request that is not understood
    takes none; it will be refused.
    """
    op, fields = str(header.get("op")), Fields(header)
    try:
        if op == "fs.upload":
            return True
        if op == "fs.restore":
            return _lies_in_memory(os.path.dirname(fields.path()))
        if op == "fs.replace_in_files":
            return any(map(is_in_memory, fields.paths("paths")))
        return op in _WRITES and is_in_memory(fields.path(_WRITES[op]))
    except errors.SandboxError:
        return False


def is_in_memory(path: bytes) -> bool:
    """Tell whether *path* is, or what is written there goes to, a file system in memory."""
    try:
        fd = _open_nearest(os.path.realpath(path))
    except OSError:  # the operation itself will meet it, and say so
        return False
    try:
        return kernel.file_system_type(fd) in _IN_MEMORY
    finally:
        os.close(fd)


def _lies_in_memory(path: bytes) -> bool:
    """Tell whether *path* as it is written, whatever links are there now, is on a mount in memory."""
    with open("/proc/self/mountinfo", "rb") as table:
        return mounted.type_at(path, table.read()) in {b"tmpfs", b"ramfs"}


def _open_nearest(path: bytes) -> int:
    """Open *path*, or the nearest directory above it that exists."""
    while True:
        try:
            return os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            path = os.path.dirname(path)


def move(sock: socket.socket, header: Mapping[str, Any], procs: Sequence[int]) -> None:
    """Go on in the commands' cgroup, in a new process; this one stays as its guard.

    Args:
        sock: the connection of the operation.
        header: its request.
        procs: cgroup.procs files of the commands' cgroup.
    """
    worker = os.fork()
    if worker:
        _guard(worker, sock, header)
        os._exit(0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    for fd in procs:
        os.write(fd, b"0")


def _guard(worker: int, sock: socket.socket, header: Mapping[str, Any]) -> None:
    """Wait for the worker; answer in its place when it is killed."""
    signal.signal(signal.SIGTERM, lambda *_: _pass_on(worker))
    _, status = os.waitpid(worker, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGALRM:  # that is `streams.STUCK`
        _remove_leftovers(worker, header)
        with suppress(OSError):
            sock.sendall(frames.encode_json(Kind.ERROR, _no_memory(header).to_wire()))
            sock.shutdown(socket.SHUT_WR)
            _drop_rest(sock)


def _pass_on(worker: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGTERM)


def _no_memory(header: Mapping[str, Any]) -> errors.NoSpaceError:
    path = _shown(header)
    return errors.NoSpaceError(
        f"the sandbox has no memory left for {path}",
        context={"path": path, "errno": "ENOMEM"},
        suggestion="what lies on a tmpfs is memory: write to the disk, or take a larger instance type",
    )


def _shown(header: Mapping[str, Any]) -> str:
    name = _WRITES.get(str(header.get("op")), "path")
    with suppress(errors.SandboxError):
        return pathnames.to_text(Fields(header).path(name))
    return ", ".join(map(str, header.get("paths") or ()))


def _drop_rest(sock: socket.socket) -> None:
    """Read what the caller still sends: closing with unread bytes could overtake the answer."""
    from atoll.agent.files.streams import CHUNK, LINGER

    sock.settimeout(LINGER)
    while sock.recv(CHUNK):
        pass


def _remove_leftovers(worker: int, header: Mapping[str, Any]) -> None:
    """Remove what a killed upload had unpacked; other changes have no name before they are done."""
    if header.get("op") in {"fs.upload", "fs.restore", "fs.place"}:
        path = Fields(header).path()
        for directory in (path, os.path.dirname(path)):
            with suppress(OSError, errors.SandboxError):
                _remove_temporaries(worker, directory)


def _remove_temporaries(worker: int, directory: bytes) -> None:
    from atoll.agent.files import copying, spools

    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in map(os.fsencode, os.listdir(fd)):
            if spools.is_temporary_of(worker, name):
                copying.remove(fd, name)
    finally:
        os.close(fd)
