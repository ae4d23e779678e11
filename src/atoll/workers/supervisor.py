"""The worker process of ``atoll dev``: started, watched, started again, replaced, stopped.

A Worker can end by itself: killed for its memory, or its code calls ``os._exit`` while it is
imported. It is started again, at once after a good time and with growing pauses otherwise. During
a pause this process answers at the listening socket, which is its own, so that no request hangs.
"""

import asyncio
import contextlib
import json
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

STOP_SECONDS = 5.0
"""How long a worker process may take to finish its requests when it is replaced."""

PAUSES = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Seconds before a process that ended by itself is started again; the last one repeats."""

GOOD_SECONDS = 10.0
"""A process that ran so long is started again without a pause."""

_HEAD_SECONDS = 5.0
"""How long a client may take to send the head of a request during a pause."""


class Worker:
    """The worker process. Its standard output is ours.

    Its standard input is a pipe that only this process holds: when that ends, however it ends,
    the worker ends too. It has a process group of its own, because Ctrl-C is meant for us: we
    stop it in order.
    """

    def __init__(
        self,
        root: Path,
        environment: str | None,
        engine_url: str,
        listener: socket.socket,
        say: Callable[[str], None],
        namespaces: Mapping[str, str] | None = None,
    ) -> None:
        self._argv = [sys.executable, "-m", "atoll.workers.host"]
        self._argv += ["--project", str(root), "--engine", engine_url]
        self._argv += ["--fd", str(listener.fileno())]
        self._argv += ["--environment", environment] if environment else []
        self.namespaces = dict(namespaces or {})
        """Namespace of each class, as the engine decided; used from the next start on."""

        self._listener = listener
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process; it takes the connections that wait at the socket."""
        self._process = await self._spawn()
        self._keeper = asyncio.create_task(self._keep(self._process))

    async def stop(self) -> None:
        """End the process; requests it has begun may finish within `STOP_SECONDS`."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _spawn(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._argv,
            *("--namespaces", json.dumps(self.namespaces)),
            pass_fds=(self._listener.fileno(),),
            stdin=asyncio.subprocess.PIPE,
            process_group=0,
        )

    async def _keep(self, process: asyncio.subprocess.Process) -> None:
        failures = 0
        while True:
            since = time.monotonic()
            ended = describe(await process.wait())
            failures = 0 if time.monotonic() - since > GOOD_SECONDS else failures
            pause = PAUSES[min(failures, len(PAUSES) - 1)]
            failures += 1
            when = f"in {pause:g} s" if pause else "now"
            self._say(f"error: the worker process {ended}; it is started again {when}")
            if pause:
                async with refusing(self._listener, f"the worker process {ended}"):
                    await asyncio.sleep(pause)
            process = self._process = await self._spawn()


def describe(code: int) -> str:
    """Return in words how a process ended. Args: code: as `subprocess` tells it."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@contextlib.asynccontextmanager
async def refusing(listener: socket.socket, reason: str) -> AsyncIterator[None]:
    """Answer all requests at *listener* with 503 and *reason* while in the block."""
    body = f"{reason}; see the output of atoll dev\n".encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_HEAD_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
            writer.write(head.encode("ascii") + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, sock=listener.dup())
    try:
        yield
    finally:
        server.close()
