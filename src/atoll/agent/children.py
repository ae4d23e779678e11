"""Children of the router: one process per file operation or carried connection, with the user's ids.

Whatever a mount, a FIFO, a slow disk or a server that reads nothing does to it, the router is free.
"""

import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from atoll import errors
from atoll.agent import confine, kernel, users
from atoll.agent.config import Config
from atoll.agent.descriptors import keep_only
from atoll.agent.loop import Loop
from atoll.agent.stub import commands_filter, default_signals, set_limits, take_ids
from atoll.wire import frames
from atoll.wire.frames import Kind

MAX_CHILDREN: Final = 256
"""File operations at once, and as many connections to ports."""

CONNECT: Final = "port.connect"

_FILES: Final = "file operations"
_CONNECTIONS: Final = "connections to ports"

_USUAL: Final = {
    _FILES: tuple(
        f"atoll.agent.files.{name}"
        for name in ("dispatch", "memory", "changes", "listing", "reading", "writing")
    ),
    _CONNECTIONS: ("atoll.agent.ports",),
}
"""Kind of child → modules that most of them need: 2 to 4 ms for each child that imports them."""

_PAUSE: Final = 0.05
"""Seconds after the first child of a kind until this process has what the next ones need."""

FIRST_TO_GO: Final = 1000
"""The highest oom_score_adj: what fills memory by a file call is ended before anything else,
whatever memory that has."""


class Children:
    """Forks them and knows which are alive."""

    def __init__(self, loop: Loop, config: Config) -> None:
        self._loop, self._config = loop, config
        self._pids: dict[int, str] = {}
        self._usual = dict(_USUAL)

    def __len__(self) -> int:
        return len(self._pids)

    def start(self, sock: socket.socket, header: dict[str, Any], user: str) -> None:
        """Do one operation as *user*; *sock* belongs to the child.

        Raises:
            ResourceBusyError: there are as many of its kind as may be.
        """
        kind = _CONNECTIONS if header.get("op") == CONNECT else _FILES
        most = min(MAX_CHILDREN, self._config.commands)
        if list(self._pids.values()).count(kind) >= most:
            raise errors.ResourceBusyError(
                f"there are {most} {kind}",
                context={"limit": most},
                suggestion="wait for some to end",
            )
        pid = os.fork()
        if not pid:
            _serve(sock, header, user, self._config)
        self._pids[pid] = kind
        sock.close()
        if modules := self._usual.pop(kind, ()):
            self._loop.later(_PAUSE, lambda: _import(modules))

    def ended(self, pid: int) -> None:
        """Note that *pid* was reaped."""
        self._pids.pop(pid, None)

    def pids(self) -> set[int]:
        """Return the processes of all of them."""
        return set(self._pids)

    def signal(self, number: int) -> None:
        """Send a signal to all of them."""
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _import(modules: Sequence[str]) -> None:
    """Have later children find *modules* here. A sandbox that has no use for them never does it."""
    for module in modules:
        importlib.import_module(module)
    gc.freeze()


def _serve(sock: socket.socket, header: dict[str, Any], user: str, config: Config) -> NoReturn:
    try:
        gc.disable()
        keep_only({0, 1, 2, sock.fileno(), *config.procs})
        _confine(sock, user, config)
        if header.get("op") == CONNECT:
            _carry(sock, header)
        else:
            _use_files(sock, header, config)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _become(user: users.User, config: Config) -> None:
    try:
        take_ids(user.uid, user.gid, user.groups, confined=config.confine)
    except OSError as error:
        raise users.refused() from error


def _carry(sock: socket.socket, header: dict[str, Any]) -> None:
    from atoll.agent import ports

    keep_only({0, 1, 2, sock.fileno()})
    ports.serve(sock, header)


def _use_files(sock: socket.socket, header: dict[str, Any], config: Config) -> None:
    from atoll.agent.files import dispatch, memory

    if config.procs and memory.takes_memory(header):
        memory.move(sock, header, config.procs)
    procs = config.procs if header.get("op") in dispatch.RUN_PROGRAMS else ()
    keep_only({0, 1, 2, sock.fileno(), *procs})
    dispatch.serve(sock, header, procs)


def _confine(sock: socket.socket, user: str, config: Config) -> None:
    default_signals()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sock.setblocking(True)
    os.umask(confine.UMASK)
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"%d" % FIRST_TO_GO)
    set_limits(config.limits)
    # Nobody inside may trace it, root neither: it holds a connection to the engine and, for a
    # moment, the way into the commands' cgroup. Its own dispatch in /proc are closed from here on.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    try:
        found = users.read(user)
        _become(found, config)
        if config.confine:  # the router has dropped the bounding set
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            kernel.install_filter(commands_filter())
    except (errors.SandboxError, OSError) as error:
        known = (
            error if isinstance(error, errors.SandboxError) else errors.InternalError(str(error))
        )
        sock.sendall(frames.encode_json(Kind.ERROR, known.to_wire()))
        os._exit(0)
