"""What passes between engine, launcher and agent at a start, and by which descriptors."""

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from atoll.errors import InvalidMountConfigError, SecurityError
from atoll.runtime.base import ContainerSpec
from atoll.runtime.bwrap import command, groups, launcher
from atoll.runtime.bwrap.limits import of_processes
from atoll.runtime.configuration import configuration


def agent_config(spec: ContainerSpec, group: str) -> bytes:
    """Descriptor 4; see `atoll.agent.config`.

    Args:
        spec: the sandbox.
        group: its control group; "": it has none.
    """
    held = groups.held(group)
    own: dict[str, Any] = {
        "listen": command.LISTENER,
        "procs": [command.PROCS] if group else [],
        "memory_events": command.EVENTS,
        "pids_events": command.REFUSED if "pids" in held else None,
        "limits": of_processes(spec, held),
    }
    return json.dumps(configuration(spec, **own)).encode()


def counters(spec: ContainerSpec, group: str) -> Iterator[tuple[Path, int]]:
    """Yield path and flags of EVENTS, and of PROCS and REFUSED where there are any."""
    held = groups.held(group)
    if not group:
        yield events(spec.run_dir), os.O_RDONLY
        return
    limited = groups.of(group)
    in_kernel = "memory" in held
    yield limited.memory_events_file() if in_kernel else events(spec.run_dir), os.O_RDONLY
    yield limited.procs_files()[0], os.O_WRONLY
    if "pids" in held:
        yield limited.pids_events_file(), os.O_RDONLY


def events(run_dir: Path | str) -> Path:
    """Return where commands killed for lack of memory are counted, unless the kernel does."""
    return Path(run_dir, "memory.events")


def first_process(news: dict[str, Any]) -> int:
    """Return the process id in what bubblewrap told, or the launcher before it.

    Raises:
        SecurityError: a volume has a link in its path.
        InvalidMountConfigError: it has something else there that is no directory.
    """
    if (target := news.get("refused")) is None:
        return int(news["child-pid"])
    context = {"path": target}
    if news["what"] == launcher.LINK:
        raise SecurityError(
            f"nothing is mounted at {target}: a part of it is a link",
            context=context,
            suggestion="give the path without links, or remove the link",
        )
    raise InvalidMountConfigError(
        f"nothing can be mounted at {target}: a part of it is no directory", context=context
    )


async def tell(config: socket.socket, data: bytes) -> bool:
    """Send the agent its configuration; return whether it has read it: it has ended if not."""
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(config, data)
        config.shutdown(socket.SHUT_WR)
        await loop.sock_recv(config, 1)  # ends when the other end is closed
        return True
    except (BrokenPipeError, ConnectionResetError):  # closed with something unread
        return False


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield two ends of a connection, the first of which does not block."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def opened_as(path: Path, flags: int, opened: ExitStack) -> int:
    """Return a descriptor of *path* that is closed with *opened*."""
    fd = os.open(path, flags | os.O_CLOEXEC)
    opened.callback(os.close, fd)
    return fd


def in_memory(name: str, content: bytes, opened: ExitStack) -> int:
    """Return a descriptor of a file in memory that is closed with *opened*."""
    fd = os.memfd_create(f"atoll-{name}")
    opened.callback(os.close, fd)
    os.pwrite(fd, content, 0)
    return fd
