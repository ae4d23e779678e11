"""The node's gateway as the engine uses it: opened in the background, its ports told to the filter.

An engine does not wait for it: a sandbox without a policy runs without it, one with a policy waits
when it starts.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import structlog

from atoll.engine.egress.bounds import Bounds, ProcessBounds
from atoll.engine.egress.direct import DirectLog
from atoll.engine.parts import Forgotten, Hear
from atoll.errors import ContainerUnavailableError, SandboxError
from atoll.network import abandoned
from atoll.network.gateway.client import Handle
from atoll.network.gateway.handover import Lend
from atoll.network.gateway.keeper import Keeper
from atoll.network.gateway.listening import Ports
from atoll.network.gateway.protocol import (
    Call,
    Decision,
    HandlerAnswer,
    Noticed,
    Put,
    StatusReport,
    Unanswered,
)
from atoll.network.rules import Redirect

RETRY = 5.0
"""Seconds between two tries to start a gateway that does not start."""

_log = structlog.get_logger(__name__)


class Redirected(Protocol):
    """What sends connections to the gateway: `atoll.network.slots`."""

    async def set_redirect(self, redirect: Redirect | None) -> None:
        """Load the filter for where it listens."""


class NodeGateway:
    """The gateway of one engine.

    Args:
        folder: its own, 0700.
        nameservers: who is asked for names.
        networks: told where it listens.
        uid: who it is.
        bounds: what it may take of the host.
        trust: files with authorities that servers on the internet may have, besides the host's.
        listeners: of sandboxes whose networks are their own, as `Keeper` takes them.

    Attributes:
        logs: where it writes what it decided.
        direct: log of what goes past it.
        answer: has a Worker's handler called; set before the first sandbox is told.
        hear: told of refusals, with the key of their sandbox; set likewise.
        forgotten: told of the key of a sandbox that is destroyed; set likewise.
    """

    def __init__(
        self,
        folder: Path,
        nameservers: Sequence[str],
        networks: Redirected,
        uid: int,
        bounds: Bounds | ProcessBounds,
        trust: Sequence[Path] = (),
        listeners: Lend | None = None,
    ) -> None:
        self.answer: Handle = _nobody
        self.hear: Hear = _unheard
        self.forgotten: Forgotten = _unknown
        self._owners: dict[str, tuple[str, str]] = {}
        """Container and key of each sandbox, by what is known of it: its container, its addresses."""
        self._networks = networks
        self._uid, self._bounds = uid, bounds
        self._keeper = Keeper(
            folder,
            nameservers,
            self._call,
            self._moved,
            uid=uid,
            trust=tuple(trust),
            bound=bounds.hold,
            notice=self._noticed,
            listeners=listeners,
        )
        self.logs = self._keeper.logs
        self.direct = DirectLog(folder / "direct")
        self._moving: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to look for it, or to start it."""
        self._opening = asyncio.create_task(self._open(), name="egress gateway")

    async def close(self, *, stop: bool) -> None:
        """Let go of it; *stop*: end it, because no sandbox is left."""
        if self._opening:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._keeper.close(stop=stop)
        if self._moving:
            await asyncio.gather(self._moving, return_exceptions=True)
        if stop:
            await asyncio.to_thread(self._bounds.remove)

    @property
    def ready(self) -> bool:
        """Whether it answers, and connections get to it."""
        return self._keeper.ready and (self._moving is None or self._moving.done())

    async def put(self, put: Put) -> None:
        """Have a policy in force, and connections sent there, when this returns.

        Raises:
            ContainerUnavailableError: there is no gateway, or it refuses (reason "network").
        """
        policy = put.policy
        ends = (policy.host_ref, *policy.addresses)
        self._owners |= dict.fromkeys(ends, (policy.host_ref, policy.key))
        self.direct.know(policy.host_ref, policy.addresses, put.log)
        try:
            await self._keeper.put(put)
        except ValueError as error:
            raise ContainerUnavailableError(str(error), context={"reason": "network"}) from error
        if self._moving:
            await asyncio.shield(self._moving)

    async def remove(self, host_ref: str) -> None:
        """Forget a sandbox."""
        self._owners = {end: one for end, one in self._owners.items() if one[0] != host_ref}
        self.direct.forget(host_ref)
        await self._keeper.remove(host_ref)

    def tell_direct(self, source: str, decision: Decision) -> None:
        """Log what was decided about a connection that goes past it, of whoever has an address."""
        self.direct.tell(source, decision)
        if owner := self._owners.get(source):
            self.hear(owner[1], decision)

    async def status(self) -> StatusReport:
        """Return how it does; raise as `put`."""
        return await self._keeper.status()

    async def settle(self) -> None:
        """Forget sandboxes of earlier engines that nobody has put; raise as `put`."""
        await self._keeper.settle()

    async def _open(self) -> None:
        while True:
            try:
                await self._keeper.open()
                # One that an engine started and was killed before it wrote that down.
                await asyncio.to_thread(
                    abandoned.kill_gateways, self._keeper.logs, self._keeper.pid
                )
                return
            except (SandboxError, OSError) as error:
                _log.error("the egress gateway does not start", error=str(error))
                await asyncio.sleep(RETRY)

    async def _call(self, call: Call) -> HandlerAnswer:
        return await self.answer(call)

    def _noticed(self, noticed: Noticed) -> None:
        if owner := self._owners.get(noticed.host_ref):
            self.hear(owner[1], noticed.decision)

    def _moved(self, ports: Ports) -> None:
        redirect = Redirect(ports.connections, ports.names, self._uid)
        before, self._moving = self._moving, None
        self._moving = asyncio.create_task(self._redirect(before, redirect), name="redirect")

    async def _redirect(self, before: asyncio.Task[None] | None, redirect: Redirect) -> None:
        if before:
            await asyncio.gather(before, return_exceptions=True)
        await self._networks.set_redirect(redirect)


def _unheard(key: str, decision: Decision) -> None:
    """Nobody is told."""


def _unknown(key: str) -> None:
    """Nobody remembers it."""


async def _nobody(call: Call) -> HandlerAnswer:
    return Unanswered(reason=f"nobody answers for {call.key}")
