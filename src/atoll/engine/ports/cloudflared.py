"""The program that makes a tunnel: how it is called, what it tells, how it is started.

It outlives the engine, and keeps the port that it leads to: it inherits a socket that is bound to
it and never listens. So nobody else on the host can take that port, and get the tunnel's visitors,
while no engine listens there; the engine's own listener shares it, as a socket of the same user.
"""

import asyncio
import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from atoll.host import lasting, process
from atoll.host.lasting import Running

START = 60.0
"""Seconds the program has to say the address of its tunnel."""

MAX_LOG = 1 << 20
"""Bytes of what it says, which its visitors can make it say more of, before they are dropped."""

_LOOK = 0.05
_LOOPBACK = "127.0.0.1"
_LINES = 20
_TAIL = 64 << 10
_ADDRESS = re.compile(r"https://[a-z0-9-]+\.trycloudflare\.com\b")
_NAMED = re.compile(r"(?:Added CNAME|hostname:)\s+([a-z0-9-]+(?:\.[a-z0-9-]+)+)")
_POWERLESS = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
_NOBODY = ["--reuid=65534", "--regid=65534", "--clear-groups"]


def arguments(program: str, origin: str, name: str | None) -> list[str]:
    """Return the command line that makes a tunnel to *origin*; a named one belongs to an account."""
    named = ["--name", name] if name else []
    return [program, "tunnel", "--no-autoupdate", *named, "--url", origin]


def address(line: str) -> str | None:
    """Return the public address that a line of the program's output tells; None: it does not."""
    if found := _ADDRESS.search(line):
        return found[0]
    named = _NAMED.search(line)
    return f"https://{named[1]}" if named else None


def port_kept() -> socket.socket:
    """Return a socket that keeps a free port of loopback from everybody but `door`."""
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    keeper.bind((_LOOPBACK, 0))
    return keeper


def door(port: int) -> socket.socket:
    """Return a socket that listens on a port that is kept.

    Raises:
        OSError: it is another user's.
    """
    found = socket.socket()
    try:
        # The first for the keeper, the second for connections of an engine that died.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((_LOOPBACK, port))
        found.listen()
    except BaseException:
        found.close()
        raise
    return found


def start(
    program: str, engine_id: str, name: str | None, keeper: socket.socket, log: Path
) -> Running:
    """Start the program, to outlive the engine; return before it says anything.

    Raises:
        FileNotFoundError: it is not installed.
    """
    port = keeper.getsockname()[1]
    argv = arguments(program, f"http://{_LOOPBACK}:{port}", name)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        marked = lasting.marked([*_drop(name), *argv], engine_id)
        return lasting.identified(process.launch(marked, [keeper.fileno()], output=output))
    finally:
        os.close(output)


def _drop(name: str | None) -> list[str]:
    """Return what the command line begins with, so that root's rights are not the program's."""
    if os.geteuid() != 0:
        return []
    # A named tunnel needs the account's credentials, which are the engine's user's.
    return [*_POWERLESS, *(_NOBODY if name is None else []), "--"]


async def told(found: Running, log: Path, given_up: Callable[[], bool]) -> str | None:
    """Wait until the program says its address, and return that; None: it ended, or was *given_up*.

    Raises:
        TimeoutError: it said none in `START` seconds.
    """
    async with asyncio.timeout(START):
        while True:
            alive = lasting.alive(found)  # asked first: what it said at its end counts
            for line in said(log):
                if url := address(line):
                    return url
            if not alive or given_up():
                return None
            await asyncio.sleep(_LOOK)


def said(log: Path) -> list[str]:
    """Return the last lines of what the program said."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read().decode(errors="replace").splitlines()[-_LINES:]
    except FileNotFoundError:
        return []


def shorten(log: Path) -> None:
    """Drop what the program said when it is too much; it appends, so it goes on at the start."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > MAX_LOG:
            os.truncate(log, 0)
