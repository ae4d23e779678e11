"""From settings to a serving engine and back: lock, engine, sockets, ready line, graceful stop.

An engine that stops leaves its sandboxes running: the next one finds them. Only a private engine
(`local()`) puts those it started or used to sleep when its last lease ends. At a stop calls that
change something may end, streams are cut: their callers attach again to the next engine.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import structlog

import atoll
from atoll.engine import engine as engines
from atoll.engine.engine import Engine
from atoll.engine.ports import exposures
from atoll.errors import ResourceBusyError, SandboxError, from_os_error
from atoll.host import unix
from atoll.proxy.server import Site
from atoll.server import front, shapes, sockets, tls
from atoll.server.app import application
from atoll.server.auth import Listener
from atoll.server.gate import Desk
from atoll.server.lease import Leases
from atoll.server.listening import HttpServer
from atoll.settings import Settings

log = structlog.get_logger(__name__)

LOCK_WAIT = 60.0
"""Seconds an engine waits for a private one before it to put its sandboxes to sleep."""


class Served:
    """A running engine with its listeners.

    Args:
        engine: an open engine.
        stack: closes what is opened here.
        stopping: is set when the last lease ended; whoever else ends the engine sets it too.
    """

    def __init__(
        self, engine: Engine, stack: AsyncExitStack, stopping: asyncio.Event | None = None
    ) -> None:
        self._engine = engine
        self._stack = stack
        self._desk = Desk(engine)
        self._site = Site(
            engine.ports,
            frozenset(name.lower() for name in engine.settings.server.preview_domains),
            front.trusting(self._desk.proxies),
            sockets.tcp_connections(),
        )
        self._servers: list[HttpServer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._leases: Leases | None = None
        self.stopping = stopping or asyncio.Event()
        self.last_left = False
        self.url: str | None = None

    async def listen(self, *, local: bool) -> dict[str, Any]:
        """Open all listeners; return the ready line.

        Raises:
            SandboxError: a port is taken, an address is wrong.
        """
        settings = self._engine.settings.server
        state_dir = self._engine.settings.storage.state_dir
        path = settings.socket or state_dir / "engine.sock"
        listener = None
        if settings.port is not None:
            context = tls.context_of(settings)
            if context:
                tls.renew_on_hangup(context, settings)
            has_keys = self._desk.auth.has_keys
            listener = sockets.tcp(settings.host, settings.port, keys=has_keys)
            self.url = _url(listener, secure=context is not None)
            kind = Listener.LOOPBACK if sockets.is_loopback(listener) else Listener.NETWORK
            self._serve(listener, kind, context)
        self._engine.ports.hostname = exposures.default_hostname(
            settings.preview_domains, listener.getsockname()[1] if listener else None
        )
        self._serve(sockets.replacing(path), Listener.UNIX)
        hello = {
            "socket": self._reachable(path),
            "url": self.url,
            "pid": os.getpid(),
            "engineId": self._engine.id,
            "version": atoll.__version__,
        }
        ended = self._left if local else None
        self._leases = Leases(
            sockets.replacing(state_dir / "lease.sock"),
            hello,
            ended,
            self._engine.mounts.local.offered,
        )
        await self._leases.open()
        self._stack.push_async_callback(self._leases.close)
        return hello

    def _reachable(self, path: Path) -> str:
        """Return *path*, or a shorter name of it where it is too long for an address."""
        if len(os.fsencode(path)) <= sockets.MAX_PATH:
            return str(path)
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._stack.callback(os.close, directory)
        return f"/proc/{os.getpid()}/fd/{directory}/{path.name}"

    def _serve(
        self, listener: socket.socket, kind: Listener, context: ssl.SSLContext | None = None
    ) -> None:
        server = HttpServer(
            application(self._desk, kind), self._engine.settings.server, kind, self._site, context
        )
        self._servers.append(server)
        self._tasks.append(asyncio.create_task(server.serve([listener])))

    def _left(self) -> None:
        self.last_left = True
        self.stopping.set()

    async def stop(self) -> None:
        """Take no more requests, let those under way end for a while, cut the rest."""
        if self._leases:  # first: who asks for the next one learns that this engine leaves
            await self._leases.close()
        for server in self._servers:
            server.should_exit = True
        await self._site.close()
        await self._desk.underway.drain(self._engine.settings.server.drain_timeout)
        await asyncio.gather(*self._tasks)
        if self.last_left:
            await self._engine.sleep_used()


def _url(listener: socket.socket, *, secure: bool) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def serve(settings: Settings, *, local: bool = False, ready_fd: int | None = None) -> None:
    """Run an engine until it is told to stop (SIGTERM, SIGINT, or its last lease).

    Args:
        local: a private engine: it stops with its last lease and puts what it used to sleep.
        ready_fd: gets one line of JSON when the engine serves, or when it cannot.

    Raises:
        SandboxError: the engine cannot start.
    """
    try:
        await _serve(settings, local, ready_fd)
    except SandboxError as error:
        _tell(ready_fd, {"error": shapes.envelope(error, "start")})
        raise
    except OSError as error:
        typed = from_os_error(error, str(error.filename or settings.storage.state_dir))
        _tell(ready_fd, {"error": shapes.envelope(typed, "start")})
        raise typed from error


async def _serve(settings: Settings, local: bool, ready_fd: int | None) -> None:
    state_dir = settings.storage.state_dir
    async with AsyncExitStack() as stack:
        locked = stack.enter_context(ExitStack())
        locked.callback(os.close, await _locked(state_dir))
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):  # now: an end half-way leaves mounts
            loop.add_signal_handler(number, stopping.set)
        engine = await stack.enter_async_context(engines.opened(settings))
        served = Served(engine, stack, stopping)
        hello = await served.listen(local=local)
        log.info("ready", **hello)
        _tell(ready_fd, hello)
        await served.stopping.wait()
        log.info("stopping", last_left=served.last_left)
        await served.stop()


async def _locked(state_dir: Path) -> int:
    until = time.monotonic() + LOCK_WAIT
    while True:
        try:
            return sockets.lock(state_dir)
        except ResourceBusyError:
            if time.monotonic() > until or await _hands_out_leases(state_dir):
                raise
            await asyncio.sleep(0.05)


async def _hands_out_leases(state_dir: Path) -> bool:
    """Whether the engine that holds the lock is there to stay."""
    try:
        with unix.address(state_dir / "lease.sock") as address:
            _, writer = await asyncio.open_unix_connection(address)
    except OSError:
        return False
    writer.close()
    return True


def _tell(fd: int | None, line: dict[str, Any]) -> None:
    if fd is not None:
        with contextlib.suppress(OSError):
            os.write(fd, json.dumps(line).encode() + b"\n")
            os.close(fd)
