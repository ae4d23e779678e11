"""Whether something answers on a port inside a sandbox, on 127.0.0.1 or ::1."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.engine.lifecycle.activity import Use
from atoll.engine.link.link import Endpoint, LinkError
from atoll.engine.ports import carried
from atoll.engine.processes.streams import Process
from atoll.errors import InvalidPortNumberError, ValidationFailedError
from atoll.network import dial
from atoll.wire.process import PortAnswer, WaitForPort

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

ADDRESSES = ("127.0.0.1", "::1")
PATIENCE = 5.0
"""Seconds one address has to answer: a server that is starting may be slow with its first page."""

_AT_LEAST = 0.25
"""Seconds of a single try, also when the caller waits for less."""

_STATUS_LINE = 64

Connect = Callable[[str, int], Awaitable[socket.socket]]
"""Connects to a loopback address and a port inside; raises an OSError where nobody listens."""


def check(wanted: WaitForPort) -> None:
    """Refuse what can never be answered.

    Raises:
        InvalidPortNumberError: the port is not one.
        ValidationFailedError: another field is wrong.
    """
    if not 1 <= wanted.port <= 0xFFFF:
        raise InvalidPortNumberError(
            f"{wanted.port} is not a port", context={"port": wanted.port}, suggestion="1 to 65535"
        )
    if wanted.mode not in {"http", "tcp"}:
        raise ValidationFailedError(
            f"{wanted.mode!r} is not a mode", context={"field": "mode"}, suggestion="http or tcp"
        )
    printable = wanted.path.isascii() and wanted.path.isprintable() and " " not in wanted.path
    if not wanted.path.startswith("/") or not printable:
        raise ValidationFailedError(
            f"{wanted.path!r} is not the path of a request",
            context={"field": "path"},
            suggestion="begin with / and percent-encode spaces and other letters",
        )


async def connector(endpoint: Endpoint) -> Connect:
    """Return how the sandbox's ports are reached: directly, or where that cannot be by its agent.

    Raises:
        LinkError: the sandbox is gone.
    """
    if endpoint.runtime.by_namespace:
        return partial(dial.connect, await namespace(endpoint))
    return partial(carried.connect, endpoint)


async def namespace(endpoint: Endpoint) -> Path | None:
    """Return the sandbox's network namespace; None: it is the engine's own.

    Raises:
        LinkError: the sandbox is gone.
    """
    container = await endpoint.runtime.find(endpoint.host_ref)
    if container is None:
        raise LinkError("the sandbox is gone")
    path = Path(f"/proc/{container.pid}/ns/net")
    try:
        return None if _is_own(path) else path
    except OSError as error:
        raise LinkError("the sandbox is gone") from error


def _is_own(namespace: Path) -> bool:
    return namespace.stat().st_ino == Path("/proc/self/ns/net").stat().st_ino


async def wait(sandbox: "Sandbox", process: Process, wanted: WaitForPort) -> PortAnswer | None:
    """Wait for an answer, *wanted.wait_ms* at most; return None as soon as the process ends."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wanted.wait_ms / 1000
    interval = max(0.01, wanted.interval_ms / 1000)
    while not process.done.is_set():
        status = await _before_end(_ask(sandbox, wanted), process, until - loop.time())
        if status is not None:
            return PortAnswer(ready=True, status=status or None)
        if not process.done.is_set() and loop.time() >= until:
            return PortAnswer(ready=False)
        await process.wait(min(interval, max(0.0, until - loop.time())))
    return None


async def _ask(sandbox: "Sandbox", wanted: WaitForPort) -> int | None:
    endpoint = sandbox.endpoint
    if endpoint is None:
        return None
    sandbox.activity.note(Use.PORT_PROBE)
    try:
        return await answer(await connector(endpoint), wanted)
    except LinkError:
        return None


async def _before_end(
    work: Coroutine[Any, Any, int | None], process: Process, seconds: float
) -> int | None:
    """Return what *work* does, or None when the process ends or the time is over before."""
    task, ended = asyncio.create_task(work), asyncio.create_task(process.done.wait())
    both: list[asyncio.Task[Any]] = [task, ended]
    try:
        await asyncio.wait(
            both, timeout=max(_AT_LEAST, seconds), return_when=asyncio.FIRST_COMPLETED
        )
        return task.result() if task.done() else None
    finally:
        for one in both:
            one.cancel()
        await asyncio.wait(both)


async def answer(connect: Connect, wanted: WaitForPort) -> int | None:
    """Return the status with which the port answers (0: it takes connections); None: not yet."""
    tries = [asyncio.create_task(_try(connect, address, wanted)) for address in ADDRESSES]
    try:
        for done in asyncio.as_completed(tries):
            if (status := await done) is not None:
                return status
        return None
    finally:
        for task in tries:
            task.cancel()
        await asyncio.wait(tries)


async def _try(connect: Connect, address: str, wanted: WaitForPort) -> int | None:
    with suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(PATIENCE):
            with await connect(address, wanted.port) as connection:
                if wanted.mode == "tcp":
                    return 0
                status = await _status(connection, wanted)
        low, high = wanted.status
        return status if low <= status <= high else None
    return None


async def _status(connection: socket.socket, wanted: WaitForPort) -> int:
    """Ask for the page and return the status; ValueError when the answer is not HTTP."""
    loop = asyncio.get_running_loop()
    request = (
        f"GET {wanted.path} HTTP/1.1\r\nHost: localhost:{wanted.port}\r\n"
        "Accept: */*\r\nUser-Agent: atoll\r\nConnection: close\r\n\r\n"
    )
    await loop.sock_sendall(connection, request.encode())
    head = b""
    while b"\r\n" not in head and len(head) < _STATUS_LINE:
        data = await loop.sock_recv(connection, _STATUS_LINE - len(head))
        if not data:
            break
        head += data
    if not head.startswith(b"HTTP/"):
        raise ValueError("not HTTP")
    return int(head.partition(b" ")[2][:3])
