"""Exposed ports: kept in the store, looked up in memory, and the way from there to the port.

A visitor's request costs no read of the store and contacts no agent: the token is compared in
memory, the connection is opened inside the sandbox's network by the engine itself. Nothing here
wakes a sandbox but `expose` and `wait`. Whoever revokes also cuts: a connection that is open ends
with the exposure it came by.
"""

import asyncio
import hmac
import secrets
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from atoll.engine.link.link import LinkError
from atoll.engine.ports import exposures as rules
from atoll.engine.ports.exposures import Exposure
from atoll.engine.ports.forwarding import Forwarding
from atoll.engine.processes import ports as probes
from atoll.engine.store import record as sandboxes
from atoll.engine.store.store import Store
from atoll.errors import InvalidTokenError, PortNotExposedError
from atoll.wire.ports import ExposePort, PreviewLink, Visit, WaitForPorts
from atoll.wire.preview import Target
from atoll.wire.process import WaitForPort

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox


class Ports:
    """The exposed ports of all sandboxes.

    Args:
        store: an open store.
        live: the sandboxes that have a container.
    """

    def __init__(self, store: Store, live: "dict[tuple[str, str], Sandbox]") -> None:
        self.hostname = "localhost"
        """The name that addresses are below when none is given."""

        self._store = store
        self._live = live
        self._of: dict[tuple[str, str], dict[int, Forwarding]] = {}
        self._by_label: dict[tuple[str, int], list[Forwarding]] = {}
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def load(self) -> None:
        """Read all of them; forget those whose sandbox is gone."""
        await self._store.execute(
            "DELETE FROM ports WHERE layer_id NOT IN"
            " (SELECT layer_id FROM sandboxes WHERE state != 'destroyed')", (),
        )  # fmt: skip
        for (body,) in await self._store.read("SELECT body FROM ports", ()):
            self._remember(msgspec.json.decode(body, type=Exposure))

    async def refresh(self, owner: tuple[str, str]) -> None:
        """Follow what another engine stored of the ports of a sandbox."""
        async with self._lock(owner):
            rows = await self._store.read(
                "SELECT body FROM ports WHERE namespace = ? AND sandbox = ?", owner
            )
            stored = [msgspec.json.decode(body, type=Exposure) for (body,) in rows]
            kept = {exposure.port for exposure in stored}
            for found in list(self._of.get(owner, {}).values()):
                if found.port not in kept:
                    self._drop(found)
            for exposure in stored:
                self._replace(exposure)

    def _remember(self, exposure: Exposure) -> Forwarding:
        owner = exposure.namespace, exposure.sandbox
        found = self._of.setdefault(owner, {}).get(exposure.port)
        if found:
            found.exposure = exposure
            return found
        made = self._of[owner][exposure.port] = Forwarding(exposure, self._live, self)
        self._by_label.setdefault((exposure.sandbox, exposure.port), []).append(made)
        return made

    def _drop(self, found: Forwarding) -> None:
        owner, label = (found.namespace, found.sandbox_id), (found.sandbox_id, found.port)
        self._of[owner].pop(found.port)
        if not self._of[owner]:
            del self._of[owner]
        self._by_label[label].remove(found)
        if not self._by_label[label]:
            del self._by_label[label]
        found.revoke()

    def _lock(self, owner: tuple[str, str]) -> asyncio.Lock:
        return self._locks.setdefault(owner, asyncio.Lock())

    # Exposing

    async def expose(self, box: "Sandbox", wanted: ExposePort) -> Exposure:
        """Expose a port of *box*, which is started if need be; the same port keeps its token.

        Raises:
            SandboxError: see `exposures`; or the sandbox cannot start.
        """
        rules.check_port(wanted.port)
        rules.check_id(box.id)
        rules.check_access(wanted)
        hostname = rules.check_hostname(wanted.hostname or self.hostname)
        async with box.use() as endpoint, self._lock((box.namespace, box.id)):
            new = self._decided(box, wanted, endpoint.generation, hostname)
            await self._write(new)
            if box.endpoint is not endpoint:
                raise LinkError("the sandbox ended before the port was exposed")
            self._replace(new)
            return new

    def _decided(
        self, box: "Sandbox", wanted: ExposePort, generation: int, hostname: str
    ) -> Exposure:
        owner = box.namespace, box.id
        mine = self._of.get(owner, {})
        old = mine[wanted.port].exposure if wanted.port in mine else None
        new = rules.exposed(
            old,
            wanted,
            owner=owner,
            layer_id=box.record.layer_id if box.record else "",
            generation=generation,
            hostname=hostname,
            now=sandboxes.now(),
        )
        others = [one.exposure for one in mine.values() if one.port != wanted.port]
        others += [
            one.exposure
            for one in self._by_label.get((box.id, wanted.port), ())
            if one.namespace != box.namespace
        ]
        for other in others:
            if other.token == new.token:
                raise rules.taken(wanted.port)
        return new

    def _replace(self, new: Exposure) -> None:
        """Put *new* in force; end connections that came by what is no longer enough."""
        before = self._of.get((new.namespace, new.sandbox), {}).get(new.port)
        old = before.exposure if before else None
        found = self._remember(new)
        ways = ("generation", "token", "public", "auth", "secret", "expires_at")
        if old and any(getattr(old, way) != getattr(new, way) for way in ways):
            found.cut()

    async def _write(self, exposure: Exposure) -> None:
        await self._store.execute(
            "INSERT OR REPLACE INTO ports (namespace, sandbox, port, layer_id, body)"
            " VALUES (?, ?, ?, ?, ?)",
            (*exposure.key, exposure.layer_id, msgspec.json.encode(exposure)),
        )

    async def unexpose(self, box: "Sandbox", port: int) -> None:
        """Revoke the exposure of *port* and cut its connections; contacts no container."""
        rules.check_port(port)
        async with self._lock((box.namespace, box.id)):
            if found := self._of.get((box.namespace, box.id), {}).get(port):
                self._drop(found)
                await self._delete(found.exposure)

    async def forget(self, owner: tuple[str, str]) -> None:
        """The sandbox is destroyed: so are its previews."""
        for found in list(self._of.get(owner, {}).values()):
            self._drop(found)
        await self._store.execute("DELETE FROM ports WHERE namespace = ? AND sandbox = ?", owner)

    async def _delete(self, exposure: Exposure) -> None:
        await self._store.execute(
            "DELETE FROM ports WHERE namespace = ? AND sandbox = ? AND port = ?", exposure.key
        )

    # Telling

    def listing(self, box: "Sandbox") -> list[Exposure]:
        """Return the ports of *box* that forward now, in order."""
        mine = self._of.get((box.namespace, box.id), {})
        return [mine[port].exposure for port in sorted(mine) if mine[port].active()]

    def state(self, box: "Sandbox", port: int, token: str | None) -> tuple[bool, bool]:
        """Return whether *port* forwards now, and whether *token* is the one that it does so by."""
        found = self.get(box, port)
        if found is None or not found.active():
            return False, False
        return True, token is not None and _same(found.exposure.token, token)

    def visits(self, box: "Sandbox", port: int) -> list[Visit]:
        """Return the access log of *port*.

        Raises:
            PortNotExposedError: there is none.
        """
        return list(self._get(box, port).visits)

    def get(self, box: "Sandbox", port: int) -> Forwarding | None:
        """Return an exposed port, whether it forwards now or not."""
        return self.of((box.namespace, box.id, port))

    def of(self, key: tuple[str, str, int]) -> Forwarding | None:
        """Return the exposed port of a namespace, sandbox and number."""
        return self._of.get(key[:2], {}).get(key[2])

    def _get(self, box: "Sandbox", port: int) -> Forwarding:
        found = self.get(box, port)
        if found is None:
            raise PortNotExposedError(f"port {port} is not exposed", context={"port": port})
        return found

    # Visiting

    def find(self, target: Target, namespaces: frozenset[str] | None = None) -> Forwarding:
        """Return what the host name *target* names, if it forwards now.

        Args:
            namespaces: those that may be visited; None: all.

        Raises:
            InvalidTokenError: nothing is exposed by that token.
            StalePreviewUrlError: it was, in an earlier start of the sandbox.
        """
        for found in self._by_label.get((target.sandbox_id, target.port), ()):
            allowed = namespaces is None or found.namespace in namespaces
            if _same(found.exposure.token, target.token) and allowed:
                found.check()
                return found
        raise InvalidTokenError(
            "no preview has this address",
            suggestion="it may have been revoked; ask for a new one",
        )

    # Private previews

    async def link(self, box: "Sandbox", port: int, seconds: float) -> PreviewLink:
        """Return a link that opens a private preview once.

        Raises:
            PortNotExposedError: the port is not exposed.
        """
        key = secrets.token_urlsafe(24)
        async with self._lock((box.namespace, box.id)):
            found, now = self._get(box, port), time.time()
            new = rules.with_link(found.exposure, key, end=now + seconds, now=now)
            await self._write(new)
            found.exposure = new
        url = f"{rules.url(new)}/.atoll/enter/{key}"
        return PreviewLink(url=url, expires_at=datetime.fromtimestamp(now + seconds, UTC))

    async def use_link(self, found: Forwarding, key: str) -> bool:
        """Use up a one-time link; durable before anybody gets in by it."""
        async with self._lock((found.namespace, found.sandbox_id)):
            new = rules.without_link(found.exposure, key, now=time.time())
            if new is None:
                return False
            found.exposure = new
            await self._write(new)
            return True

    # Waiting

    async def wait(self, box: "Sandbox", wanted: WaitForPorts) -> list[int]:
        """Start *box* and wait until all ports take connections; return those that do not."""
        for port in wanted.ports:
            probes.check(WaitForPort(port=port, mode="tcp"))
        until = time.monotonic() + wanted.wait_ms / 1000
        async with box.use() as endpoint:
            missing = list(dict.fromkeys(wanted.ports))
            while missing:
                connect = await probes.connector(endpoint)
                asked = [WaitForPort(port=port, mode="tcp") for port in missing]
                found = await asyncio.gather(*(probes.answer(connect, one) for one in asked))
                pairs = zip(missing, found, strict=True)
                missing = [port for port, answer in pairs if answer is None]
                left = until - time.monotonic()
                if not missing or left <= 0:
                    break
                await asyncio.sleep(min(left, max(0.02, wanted.interval_ms / 1000)))
            return missing


def _same(known: str, given: str) -> bool:
    return hmac.compare_digest(known.encode(), given.encode())
