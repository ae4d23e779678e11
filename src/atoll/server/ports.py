"""Exposed ports over HTTP, and connections that carry raw bytes to a port or to previews."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from atoll.engine.engine import Engine
from atoll.engine.lifecycle.activity import Use
from atoll.engine.ports import exposures, forwarding
from atoll.errors import ServiceNotRespondingError, ValidationFailedError
from atoll.host.pump import Channel, Counts, tunnel
from atoll.proxy.route import Visitor
from atoll.proxy.server import Connection, Entrance
from atoll.server import addressed
from atoll.server.front import Taken, site_of
from atoll.wire import ports as wire
from atoll.wire.base import Done, Empty

RETRY = 0.05
"""Seconds between two tries to connect to a server that is starting."""

MAX_WAIT = 600.0
"""Seconds one request waits for a port; who wants to wait longer asks again."""

SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
    + wire.RAW.encode()
    + b"\r\n\r\n"
)


def _port(request: Request) -> int:
    return exposures.check_port(request.path_params["port"])


async def expose(engine: Engine, request: Request, wanted: wire.ExposePort) -> wire.ExposedPort:
    """Expose a port."""
    found = await engine.ports.expose(addressed.sandbox(engine, request), wanted)
    return exposures.told(found, secret=True)


async def listing(engine: Engine, request: Request, wanted: wire.ListPorts) -> wire.ExposedPorts:
    """Return the ports that forward now."""
    hostname = None if wanted.hostname is None else exposures.check_hostname(wanted.hostname)
    box = addressed.sandbox(engine, request)
    await box.load()
    return wire.ExposedPorts(
        ports=[exposures.told(found, hostname) for found in engine.ports.listing(box)]
    )


async def check(engine: Engine, request: Request, wanted: wire.CheckPort) -> wire.PortState:
    """Tell whether a port forwards now, by a token."""
    exposed, valid = engine.ports.state(
        addressed.sandbox(engine, request), _port(request), wanted.token
    )
    return wire.PortState(exposed=exposed, valid=valid)


async def unexpose(engine: Engine, request: Request, wanted: Empty) -> Done:
    """Revoke a port, and end its tunnel."""
    box, port = addressed.sandbox(engine, request), _port(request)
    await engine.ports.unexpose(box, port)
    await engine.tunnels.destroy(box, port)
    return Done()


async def link(engine: Engine, request: Request, wanted: wire.MakeLink) -> wire.PreviewLink:
    """Make a one-time link."""
    seconds = wanted.expires_ms / 1000
    return await engine.ports.link(addressed.sandbox(engine, request), _port(request), seconds)


async def log(engine: Engine, request: Request, wanted: Empty) -> wire.AccessLog:
    """Return the latest visits."""
    return wire.AccessLog(
        visits=engine.ports.visits(addressed.sandbox(engine, request), _port(request))
    )


async def wait(engine: Engine, request: Request, wanted: wire.WaitForPorts) -> wire.PortsReady:
    """Start the sandbox and wait for ports."""
    wait_ms = min(wanted.wait_ms, round(MAX_WAIT * 1000))
    bounded = msgspec.structs.replace(wanted, wait_ms=wait_ms)
    return wire.PortsReady(
        missing=await engine.ports.wait(addressed.sandbox(engine, request), bounded)
    )


async def open_tunnel(engine: Engine, request: Request, wanted: wire.OpenTunnel) -> wire.Tunnel:
    """Give a port a public address."""
    return await engine.tunnels.get(addressed.sandbox(engine, request), _port(request), wanted.name)


async def destroy_tunnel(engine: Engine, request: Request, wanted: Empty) -> Done:
    """Take the public address of a port away."""
    await engine.tunnels.destroy(addressed.sandbox(engine, request), _port(request))
    return Done()


async def tunnels(engine: Engine, request: Request, wanted: Empty) -> wire.TunnelList:
    """Return the tunnels of a sandbox."""
    return wire.TunnelList(tunnels=engine.tunnels.listing(addressed.sandbox(engine, request)))


class Raw:
    """Answers by handing the connection over. An ASGI application.

    Args:
        run: what is done with the connection; it ends by itself when *run* does.
    """

    def __init__(self, run: Callable[[Channel], Awaitable[None]]) -> None:
        self._run = run

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        """Take the connection from the HTTP server."""
        take: Taken | None = scope.get("extensions", {}).get("atoll.take")
        if take is None:
            raise ValidationFailedError(
                "this is a connection, not a request",
                suggestion=f"ask for it by Connection: Upgrade and Upgrade: {wire.RAW}",
            )
        channel, transport = Channel(), take()
        channel.connection_made(transport)
        transport.set_protocol(channel)  # before the caller may send anything
        await channel.write(SWITCHED)
        await self._run(channel)


async def connect(engine: Engine, request: Request, wanted: wire.ConnectPort) -> ASGIApp:
    """Connect the caller to a port inside, which is waited for."""
    box, port = (
        addressed.sandbox(engine, request),
        exposures.check_number(request.path_params["port"]),
    )
    until = time.monotonic() + min(wanted.wait_ms / 1000, MAX_WAIT)
    async with box.use() as endpoint:
        while True:
            try:
                connection = await forwarding.connect(endpoint, port)
                break
            except ServiceNotRespondingError:
                if time.monotonic() >= until or box.endpoint is not endpoint:
                    raise
            await asyncio.sleep(RETRY)

    async def run(outside: Channel) -> None:
        loop = asyncio.get_running_loop()
        _, inside = await loop.create_connection(Channel, sock=connection)
        held = box.activity.during(Use.CALL) if wanted.hold else nullcontext()
        with held:
            await tunnel(outside, inside, lambda: box.activity.note(Use.PREVIEW_TRAFFIC), Counts())

    return Raw(run)


async def previews(engine: Engine, request: Request, wanted: wire.ConnectPreviews) -> ASGIApp:
    """Let a program of the caller's pass visitors on: its word about them counts."""
    caller = request.scope["call"].caller
    named = None if wanted.namespaces is None else frozenset(wanted.namespaces.split(","))
    if caller.namespace is not None:
        named = frozenset({caller.namespace}) & (named or {caller.namespace})
    site = site_of(request)

    async def run(channel: Channel) -> None:
        entrance = Entrance(Visitor(""), lambda address: not address, namespaces=named)
        await Connection(site, entrance, *channel.hand_over()).ended()

    return Raw(run)
