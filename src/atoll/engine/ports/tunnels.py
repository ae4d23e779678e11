"""Public addresses for ports without inbound access, through ``cloudflared`` where it is installed.

Each tunnel has a listener of its own on loopback that leads to its one preview and nowhere else:
neither a Host that the visitor chooses nor a fault of the tunnel's program reaches the API or
another sandbox. The rules of previews hold: a sandbox that sleeps is not woken.
"""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from atoll.engine.ports.forwarding import MAX_CONNECTIONS, Forwarding
from atoll.engine.ports.ports import Ports
from atoll.errors import TunnelError, TunnelNotAvailableError, ValidationFailedError
from atoll.host import process
from atoll.proxy.route import Visitor
from atoll.proxy.server import Connection, Entrance, Site
from atoll.wire.ports import ExposePort, Tunnel

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

START = 60.0
"""Seconds the program has to say the address of its tunnel."""

_ADDRESS = re.compile(r"https://[a-z0-9-]+\.trycloudflare\.com\b")
_NAMED = re.compile(r"(?:Added CNAME|hostname:)\s+([a-z0-9-]+(?:\.[a-z0-9-]+)+)")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LINES = 20


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


@dataclass
class _Running:
    place: Forwarding
    name: str | None
    told: "asyncio.Future[str]"
    lines: list[str] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None

    def line(self, line: str) -> None:
        self.lines = [*self.lines[-_LINES:], line]
        if (found := address(line)) and not self.told.done():
            self.told.set_result(found)

    @property
    def info(self) -> Tunnel:
        return Tunnel(port=self.place.port, url=self.told.result(), name=self.name)


class Tunnels:
    """The tunnels of one engine; they end with it.

    Args:
        ports: the exposed ports.
        program: ``cloudflared``, or where it is.
    """

    def __init__(self, ports: Ports, program: str) -> None:
        self._ports = ports
        self._program = program
        self._running: dict[tuple[str, str, int], _Running] = {}
        self._lock = asyncio.Lock()

    async def get(self, box: "Sandbox", port: int, name: str | None) -> Tunnel:
        """Return the tunnel of a port; start it, and expose the port, where need be.

        Raises:
            TunnelNotAvailableError: the program is not installed.
            TunnelError: it ended, or told no address in time; with what it said.
        """
        if name is not None and not _NAME.fullmatch(name):
            raise ValidationFailedError(
                f"{name[:80]!r} cannot be the name of a tunnel",
                context={"field": "name"},
                suggestion="use a DNS label: up to 63 of a-z, 0-9 and '-'",
            )
        if process.find(self._program) is None:
            raise _missing()
        async with self._lock:
            place = await self._exposed(box, port)
            found = self._running.get(place.exposure.key)
            if found and found.name == name and found.task and not found.task.done():
                return found.info
            await self._end(place.exposure.key)
            return await self._start(place, name)

    async def _exposed(self, box: "Sandbox", port: int) -> Forwarding:
        found = self._ports.get(box, port)
        if found is None or not found.active():
            await self._ports.expose(box, ExposePort(port=port))
            found = self._ports.get(box, port)
        if found is None:
            raise TunnelError("the port was revoked meanwhile", context={"port": port})
        return found

    async def _start(self, place: Forwarding, name: str | None) -> Tunnel:
        running = _Running(place, name, asyncio.get_running_loop().create_future())
        running.task = asyncio.create_task(self._run(running))
        either: list[asyncio.Future[Any]] = [running.task, running.told]
        try:
            async with asyncio.timeout(START):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self._stop(running)
            raise _failed(running, f"told no address within {START:.0f} s") from None
        except BaseException:
            await self._stop(running)
            raise
        if not running.told.done():
            await asyncio.wait({running.task})
            _raise(running)
        self._running[place.exposure.key] = running
        return running.info

    async def _run(self, running: _Running) -> None:
        """Serve the tunnel's listener and run its program, until either ends."""
        place = running.place
        site = Site(self._ports, frozenset(), lambda _: True, MAX_CONNECTIONS)

        class Door(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                entrance = Entrance(Visitor("127.0.0.1", "https"), _is_loopback, place=place)
                Connection(site, entrance, cast("asyncio.Transport", transport))

        door = await asyncio.get_running_loop().create_server(Door, "127.0.0.1", 0)
        try:
            port = door.sockets[0].getsockname()[1]
            argv = arguments(self._program, f"http://127.0.0.1:{port}", running.name)
            # A named tunnel needs the account's credentials, which are the engine's user's.
            await process.follow(argv, running.line, unprivileged=running.name is None)
        finally:
            door.close()
            await site.close()
            if self._running.get(place.exposure.key) is running:
                del self._running[place.exposure.key]

    async def _stop(self, running: _Running) -> None:
        if running.task:
            running.task.cancel()
            await asyncio.wait({running.task})
        running.told.cancel()

    async def _end(self, key: tuple[str, str, int]) -> None:
        if running := self._running.pop(key, None):
            await self._stop(running)

    def listing(self, box: "Sandbox") -> list[Tunnel]:
        """Return the tunnels of a sandbox."""
        owner = box.namespace, box.id
        found = [one for key, one in self._running.items() if key[:2] == owner]
        return sorted((one.info for one in found), key=lambda tunnel: tunnel.port)

    async def destroy(self, box: "Sandbox", port: int) -> None:
        """End the tunnel of a port, if there is one; the port stays exposed."""
        async with self._lock:
            await self._end((box.namespace, box.id, port))

    async def forget(self, owner: tuple[str, str]) -> None:
        """The sandbox is destroyed: so are its tunnels."""
        for key in [key for key in self._running if key[:2] == owner]:
            await self._end(key)

    async def close(self) -> None:
        """End all tunnels."""
        for key in list(self._running):
            await self._end(key)


def _is_loopback(address: str) -> bool:
    return address == "127.0.0.1"


def _raise(running: _Running) -> None:
    try:
        if running.task:
            running.task.result()
    except FileNotFoundError as error:
        raise _missing() from error
    except OSError as error:
        raise _failed(running, str(error)) from error
    raise _failed(running, "ended")


def _missing() -> TunnelNotAvailableError:
    return TunnelNotAvailableError(
        "cloudflared is not installed on the engine's host",
        suggestion="install cloudflared, or expose the port on a domain of yours",
    )


def _failed(running: _Running, what: str) -> TunnelError:
    with suppress(asyncio.InvalidStateError):
        running.told.cancel()
    return TunnelError(
        f"cloudflared {what}",
        context={"port": running.place.port, "output": "\n".join(running.lines)[-2_000:]},
        suggestion=running.lines[-1][:300] if running.lines else None,
    )
