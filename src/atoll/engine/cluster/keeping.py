"""Renews the leases of sandboxes, and has those end that no replica reaches.

All replicas renew all of them, straight to the agents: whoever is reached by one of them lives on. What
may be renewed until when, and when nothing of it can have an effect any more, is in `renewals`.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
import structlog

from atoll.engine.cluster.peers import LeasePeers
from atoll.engine.cluster.renewals import ROUNDS, reached_by_none
from atoll.engine.cluster.store import ClusterStore
from atoll.engine.engine import Engine
from atoll.engine.lifecycle import ending
from atoll.engine.link.link import LinkError
from atoll.engine.store.record import Record
from atoll.errors import SandboxError
from atoll.wire.sandbox import State

log = structlog.get_logger(__name__)

AT_ONCE = 200
"""Renewals that are under way at the same time; as many to agents that did not answer the last one."""


class Told(msgspec.Struct):
    """Answer of an agent: what its clock says."""

    now: float


class Keeping:
    """Keeps what this engine and its peers share alive.

    Args:
        engine: the engine of this replica.
        store: the records.
        peers: the other replicas.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        engine: Engine,
        store: ClusterStore,
        peers: LeasePeers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._store, self._peers, self._clock = engine, store, peers, clock
        self._slots, self._last_slots = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(AT_ONCE)
        self._work: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Renew for as long as the engine is open."""
        try:
            await self._run()
        finally:
            for work in list(self._work.values()):
                work.cancel()

    async def _run(self) -> None:
        while True:
            shortest = self._default
            try:
                records = [one for one in await self._store.owners() if _lease(one)]
                self._round(records)
                shortest = min((_lease(one) for one in records), default=shortest)
            except Exception as error:  # all sandboxes would end if this ended
                log.error("round of renewals failed", exc_info=error)
            await asyncio.sleep(shortest / ROUNDS)

    @property
    def _default(self) -> float:
        return float(self._engine.settings.cluster.lease)

    async def heard(self, namespace: str, id: str) -> None:
        """Follow what another replica wrote: what is fenced is renewed no more, and that is said."""
        record = await self._store.get(namespace, id)
        if record and record.fencing and record.host_ref:
            self._stop(record.host_ref)

    def _stop(self, host_ref: str) -> None:
        if self._peers.renewals.stop(host_ref, self._clock()):
            self._peers.tell()

    def _round(self, records: Sequence[Record]) -> None:
        self._peers.renewals.keep(str(one.host_ref) for one in records)
        for record in records:
            if record.fencing:
                self._stop(str(record.host_ref))
            elif record.state is State.RUNNING:
                self._once("renew", record, self._renew)
            if self._due(record):
                self._once("fence", record, self._fence)

    def _once(
        self, what: str, record: Record, work: Callable[[Record], Coroutine[Any, Any, None]]
    ) -> None:
        """Begin *work* unless it is under way for this start."""
        key = what, str(record.host_ref)
        if key not in self._work:
            task = self._work[key] = asyncio.create_task(work(record))
            task.add_done_callback(lambda _: self._work.pop(key))

    async def _renew(self, record: Record) -> None:
        """Renew the lease of one start. Those that fail must not keep the others waiting."""
        failing = self._peers.renewals.failing(str(record.host_ref))
        async with self._last_slots if failing else self._slots:
            if await self._asked(record) is None:  # the answer is what the first renewal names
                await self._asked(record)

    async def _asked(self, record: Record) -> float | None:
        """Ask one agent for its time, and renew up to one that it told earlier; return that."""
        renewals, name, lease = self._peers.renewals, str(record.host_ref), _lease(record)
        if not (await self._current(record) and renewals.may(name) and self._peers.fresh(lease)):
            return 0.0
        until = renewals.begin(name, lease, self._clock())
        try:
            async with asyncio.timeout(lease / ROUNDS):
                reply = await self._engine.endpoint(record).call({"op": "lease", "until": until})
            told = msgspec.json.decode(reply, type=Told)
        except (LinkError, SandboxError, msgspec.MsgspecError, TimeoutError) as error:
            self._failed(name, error)
            return 0.0
        if renewals.answered(name, told.now, self._clock()):
            self._peers.tell()
        return until

    async def _current(self, record: Record) -> bool:
        found = await self._store.get(*record.key)
        return bool(found and found.state is State.RUNNING and found.host_ref == record.host_ref)

    def _failed(self, host_ref: str, error: Exception) -> None:
        if self._peers.renewals.failed(host_ref, self._clock()):
            log.warning("lease not renewed", host_ref=host_ref, reason=str(error))
            self._peers.tell()

    def _due(self, record: Record) -> bool:
        """Whether it is for this replica to have the sandbox end, or to see an end through."""
        name, lease, peers = str(record.host_ref), _lease(record), self._peers
        if record.fencing:
            return record.actor == self._store.actor  # of one that died, `following` does
        return (
            record.state is State.RUNNING
            and peers.fresh(lease)
            and peers.renewals.suspect(name, lease, self._clock())
            and reached_by_none(name, peers.others())
        )

    async def _fence(self, record: Record) -> None:
        box = self._engine.sandbox(*record.key)
        try:
            await box.load()
            await box.settle()
            await box.entry.follow(fresh=True)
            if box.record is None or box.record.host_ref != record.host_ref:
                return
            if box.record.fencing:
                await box.alone("stop", lambda: ending.clean_up(box))
            elif box.is_in(State.RUNNING):
                await box.alone("stop", lambda: ending.fence(box))
        except SandboxError as error:
            log.warning("not fenced", sandbox=record.id, reason=str(error))


def _lease(record: Record) -> float:
    return record.in_force.lease if record.in_force and record.host_ref else 0.0
