"""Public addresses for ports without inbound access, through ``cloudflared`` where it is installed.

Each tunnel has a listener of its own on loopback that leads to its one preview and nowhere else:
neither a Host that the visitor chooses nor a fault of the tunnel's program reaches the API or
another sandbox. The rules of previews hold: a sandbox that sleeps is not woken.

The program outlives the engine, and with it the address: a row says what the next engine listens
on for whom. The row follows the program, which an engine that dies in between leaves without one;
such a program is found by its mark. A program that ends takes its tunnel along, with an event,
since a new one would have another address.
"""

import asyncio
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast
from weakref import WeakValueDictionary

import msgspec
import structlog

from atoll.engine.lifecycle.faults import Faults
from atoll.engine.ports import cloudflared
from atoll.engine.ports.forwarding import MAX_CONNECTIONS, Forwarding
from atoll.engine.ports.ports import Ports
from atoll.engine.store.store import Store
from atoll.errors import TunnelError, TunnelNotAvailableError, ValidationFailedError
from atoll.host import lasting, process
from atoll.host.lasting import Running
from atoll.proxy.route import Visitor
from atoll.proxy.server import Connection, Entrance, Site
from atoll.wire.ports import ExposePort, Tunnel

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

log = structlog.get_logger(__name__)

ENDED = "tunnel_ended"
"""The event of a tunnel that nobody ended."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")

Key = tuple[str, str, int]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A tunnel as the store has it. `layer_id` tells its sandbox from a later one of that name."""

    id: str
    key: Key
    layer_id: str
    name: str | None
    url: str
    local_port: int
    process: Running

    @property
    def info(self) -> Tunnel:
        """What callers are told."""
        return Tunnel(port=self.key[2], url=self.url, name=self.name)


class _Open:
    """A tunnel that this engine listens for; its *own* is one that it started too."""

    def __init__(self, kept: Kept, server: asyncio.Server, site: Site, *, own: bool) -> None:
        self.kept = kept
        self.own = own
        self._server = server
        self._site = site
        self.watch: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Listen no more; its program goes on."""
        if self.watch and self.watch is not asyncio.current_task():
            self.watch.cancel()
            await asyncio.wait({self.watch})
        self._server.close()
        await self._site.close()


class Tunnels:
    """The tunnels of one engine.

    Args:
        store: an open store.
        ports: the exposed ports.
        folder: where the programs' output is kept.
        engine_id: whose programs they are.
        program: ``cloudflared``, or where it is.
        faults: where a test has the engine die.
    """

    def __init__(
        self, store: Store, ports: Ports, folder: Path, engine_id: str, program: str, faults: Faults
    ) -> None:
        self._store = store
        self._ports = ports
        self._folder = folder
        self._engine_id = engine_id
        self._program = program
        self._faults = faults
        self._open: dict[Key, _Open] = {}
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

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
        # Not under the lock: it may wait for a destruction, which ends what is under it.
        place = await self._exposed(box, port)
        async with self._lock(box.namespace, box.id):
            found = self._open.get(place.exposure.key)
            if found and found.kept.name == name and lasting.alive(found.kept.process):
                return found.kept.info
            await self._end(place.exposure.key)
            return await self._start(place, name)

    async def _exposed(self, box: "Sandbox", port: int) -> Forwarding:
        found = self._ports.get(box, port)
        if found is None or not found.active():
            await self._ports.expose(box, ExposePort(port=port))
            found = self._ports.get(box, port)
        if found is None:
            raise _revoked(port)
        return found

    def _lock(self, *owner: str) -> asyncio.Lock:
        namespace, sandbox = owner
        return self._locks.setdefault((namespace, sandbox), asyncio.Lock())

    async def _start(self, place: Forwarding, name: str | None) -> Tunnel:
        id = secrets.token_hex(6)
        with cloudflared.port_kept() as keeper:
            try:
                found = cloudflared.start(
                    self._program, self._engine_id, name, keeper, self._log(id)
                )
            except OSError as error:
                raise _failed(place.port, f"cannot be started: {error}", []) from error
            local_port = keeper.getsockname()[1]
        self._faults.at("tunnel.started")
        try:
            kept = Kept(
                id=id,
                key=place.exposure.key,
                layer_id=place.exposure.layer_id,
                name=name,
                url=await self._url(place, found, id),
                local_port=local_port,
                process=found,
            )
            await self._listen(place, kept, own=True)
            await self._write(kept)
        except BaseException:
            await self._put_down(place.exposure.key, found, id)
            raise
        self._faults.at("tunnel.recorded")
        return kept.info

    async def _url(self, place: Forwarding, found: Running, id: str) -> str:
        why = "ended"
        try:
            url = await cloudflared.told(found, self._log(id), lambda: place.revoked)
            if place.revoked:
                raise _revoked(place.port)
            if url:
                return url
        except TimeoutError:
            why = f"told no address within {cloudflared.START:.0f} s"
        raise _failed(place.port, why, cloudflared.said(self._log(id)))

    async def _listen(self, place: Forwarding, kept: Kept, *, own: bool) -> None:
        """Serve the tunnel's listener; watch for the end of its program."""
        site = Site(self._ports, frozenset(), lambda _: True, MAX_CONNECTIONS)

        class Door(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                entrance = Entrance(Visitor("127.0.0.1", "https"), _is_loopback, place=place)
                Connection(site, entrance, cast("asyncio.Transport", transport))

        loop = asyncio.get_running_loop()
        server = await loop.create_server(Door, sock=cloudflared.door(kept.local_port))
        found = self._open[kept.key] = _Open(kept, server, site, own=own)
        found.watch = loop.create_task(self._watch(found))

    async def _watch(self, found: _Open) -> None:
        await lasting.ended(found.kept.process)
        async with self._lock(*found.kept.key[:2]):
            if self._open.get(found.kept.key) is found:
                await self._lost(found.kept, "the program ended")

    async def _lost(self, kept: Kept, reason: str) -> None:
        """Forget a tunnel that nobody ended, and tell of it."""
        said = cloudflared.said(self._log(kept.id))
        log.warning("a tunnel ended", sandbox=kept.key[1], port=kept.key[2], reason=reason,
                    said=said[-3:])  # fmt: skip
        await self._end_kept(kept)
        record = await self._store.get(kept.key[0], kept.key[1])
        if record and record.layer_id == kept.layer_id:
            await self._store.events.add(record, ENDED, f"{kept.url}: {reason}")

    # Ending

    async def _end(self, key: Key) -> None:
        if found := self._open.get(key):
            await self._end_kept(found.kept)

    async def _end_kept(self, kept: Kept) -> None:
        """End a tunnel: the program first, and its row last."""
        await self._put_down(kept.key, kept.process, kept.id)
        await self._store.execute("DELETE FROM tunnels WHERE id = ?", (kept.id,))

    async def _put_down(self, key: Key, found: Running, id: str) -> None:
        lasting.kill(found)
        if running := self._open.pop(key, None):
            await running.close()
        await lasting.ended(found)
        with suppress(FileNotFoundError):
            self._log(id).unlink()

    async def destroy(self, box: "Sandbox", port: int) -> None:
        """End the tunnel of a port, if there is one; the port stays exposed."""
        async with self._lock(box.namespace, box.id):
            await self._end((box.namespace, box.id, port))

    async def forget(self, owner: tuple[str, str]) -> None:
        """The sandbox is destroyed: so are its tunnels. Its ports were forgotten before."""
        async with self._lock(*owner):
            for key in [key for key in self._open if key[:2] == owner]:
                await self._end(key)

    async def end_own(self) -> None:
        """End the tunnels that were started here: nobody will ask for them again."""
        for key in [key for key, found in self._open.items() if found.own]:
            async with self._lock(*key[:2]):
                await self._end(key)

    # Telling

    def listing(self, box: "Sandbox") -> list[Tunnel]:
        """Return the tunnels of a sandbox."""
        owner = box.namespace, box.id
        found = [one.kept for key, one in self._open.items() if key[:2] == owner]
        return [kept.info for kept in sorted(found, key=lambda kept: kept.key)]

    # From one engine to the next

    async def recover(self) -> None:
        """Listen again for what an earlier engine left; end what belongs to no port."""
        await asyncio.to_thread(self._folder.mkdir, mode=0o700, exist_ok=True)
        rows = await self._store.read("SELECT body FROM tunnels", ())
        found = [msgspec.json.decode(row[0], type=Kept) for row in rows]
        sessions = frozenset(kept.process.pid for kept in found)
        await asyncio.to_thread(lasting.kill_marked, self._engine_id, but=sessions)
        for kept in found:
            await self._take_over(kept)
        await asyncio.to_thread(self._tidy, {f"{kept.id}.log" for kept in found})

    async def _take_over(self, kept: Kept) -> None:
        place = self._ports.of(kept.key)
        if place is None or place.exposure.layer_id != kept.layer_id:
            await self._end_kept(kept)
        elif not lasting.alive(kept.process):
            await self._lost(kept, "the program ended")
        else:
            try:
                await self._listen(place, kept, own=False)
            except OSError as error:
                await self._lost(kept, f"cannot listen for it: {error}")

    def _tidy(self, known: set[str]) -> None:
        for path in self._folder.iterdir():
            if path.name not in known:
                path.unlink()

    async def tend(self) -> None:
        """Keep what the programs say within bounds."""
        for found in list(self._open.values()):
            cloudflared.shorten(self._log(found.kept.id))

    async def close(self) -> None:
        """Leave all tunnels to the next engine."""
        for found in list(self._open.values()):
            await found.close()
        self._open.clear()

    async def _write(self, kept: Kept) -> None:
        await self._store.execute(
            "INSERT INTO tunnels (id, namespace, sandbox, body) VALUES (?, ?, ?, ?)",
            (kept.id, *kept.key[:2], msgspec.json.encode(kept)),
        )

    def _log(self, id: str) -> Path:
        return self._folder / f"{id}.log"


def _is_loopback(address: str) -> bool:
    return address == "127.0.0.1"


def _missing() -> TunnelNotAvailableError:
    return TunnelNotAvailableError(
        "cloudflared is not installed on the engine's host",
        suggestion="install cloudflared, or expose the port on a domain of yours",
    )


def _revoked(port: int) -> TunnelError:
    return TunnelError("the port was revoked meanwhile", context={"port": port})


def _failed(port: int, why: str, said: list[str]) -> TunnelError:
    return TunnelError(
        f"cloudflared {why}",
        context={"port": port, "output": "\n".join(said)[-2_000:]},
        suggestion=said[-1][:300] if said else None,
    )
