"""What happens by itself: idle sandboxes sleep, `ttl` ends them, orphans are removed.

Deadlines are not tasks: they follow from records and the time of the last use, so they hold after
a restart. A tick looks only at live sandboxes (a comparison each), so it costs next to nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from atoll.engine.capacity import pressure
from atoll.engine.leftovers import reaper
from atoll.engine.sandbox import Sandbox
from atoll.engine.shared import Shared
from atoll.engine.store import record as rules
from atoll.errors import SandboxError
from atoll.host.tasks import Tasks

log = structlog.get_logger(__name__)

TICK = 0.5
"""Seconds between two looks at the live sandboxes."""

NOTE_ACTIVITY = 5.0
"""Seconds between two writes of the times of last use, and of the sessions used since, for all
sandboxes in one commit."""


LOOK_AT_MEMORY = 2.0
"""Seconds between two looks at the node's memory (0.1 ms each)."""

BOUND_LOGS = 5.0
"""Seconds between two looks at the logs of sandboxes with running processes. Each log is bounded
by its writer; what they take together may be over the limit for this long."""


class Timers:
    """The engine's clockwork.

    Args:
        shared: what all sandboxes work with.
        lookup: returns the object of a namespace and id.
        tidying: remove what ends, beside what is done here.
    """

    def __init__(
        self,
        shared: Shared,
        lookup: Callable[[str, str], Sandbox],
        tidying: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        self._shared = shared
        self._lookup = lookup
        self._tidying = tidying
        self._tasks = Tasks()
        self._working: set[Sandbox] = set()

    def open(self) -> None:
        """Start ticking."""
        interval = self._shared.settings.lifecycle.reap_interval
        for period, work in (
            (TICK, self._idle),
            (NOTE_ACTIVITY, self._note),
            (TICK, self._expire),
            (TICK, self._reopen_layers),
            (LOOK_AT_MEMORY, self._relieve),
            (BOUND_LOGS, self._shared.processes.shrink),
            (interval, self._shared.processes.tidy),
            *((interval, tidy) for tidy in self._tidying),
            (interval, self._reap),
        ):
            self._tasks.begin(self._every(period, work))

    async def close(self) -> None:
        """Stop ticking; a transition that began goes on by itself."""
        await self._tasks.close()

    async def _every(self, period: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await asyncio.sleep(period)
            try:
                await work()
            except Exception as error:
                log.error("timer failed", timer=work.__name__, exc_info=error)

    async def _idle(self) -> None:
        for sandbox in list(self._shared.live.values()):
            wanted = sandbox.wanted
            idle_for = (wanted.sleep_after_ms or 0) / 1000
            if wanted.keep_alive or not sandbox.idle or sandbox.activity.idle() < idle_for:
                continue
            if sandbox not in self._working:
                self._working.add(sandbox)
                self._tasks.begin(self._sleep(sandbox, idle_for))

    async def _sleep(self, sandbox: Sandbox, idle_for: float) -> None:
        try:
            if await self._shared.objects.expired(sandbox):
                return
            if await sandbox.sleep_if_idle(idle_for):
                log.info("sandbox sleeps", sandbox=sandbox.id, idle_for=idle_for)
        except SandboxError as error:
            log.warning("sandbox does not sleep", sandbox=sandbox.id, reason=str(error))
        finally:
            self._working.discard(sandbox)

    async def _expire(self) -> None:
        for namespace, id in await self._shared.store.expired(rules.now().timestamp()):
            log.info("ttl is over", namespace=namespace, sandbox=id)
            await self._lookup(namespace, id).destroy(rules.TTL)

    async def _reopen_layers(self) -> None:
        """Get a layer store that failed on a full disk back, once there is space.

        No sandbox on it can write a file any more: they are stopped, and wake on what was kept.
        """
        layers = self._shared.lifecycle.parts.layers
        if not await layers.is_shut():
            return
        log.error("the layer store failed on a full disk: stopping sandboxes to open it again")
        stops = [sandbox.stop(rules.DISK) for sandbox in self._shared.live.values()]
        await asyncio.gather(*stops, return_exceptions=True)
        await layers.reopen()
        log.info("the layer store is open again")

    async def _relieve(self) -> None:
        await pressure.relieve(self._shared)

    async def _note(self) -> None:
        live = list(self._shared.live.values())
        notes = [sandbox.note_activity() for sandbox in live]
        notes += [_keep_sessions(sandbox) for sandbox in live]
        await asyncio.gather(*notes, return_exceptions=True)

    async def _reap(self) -> None:
        for sandbox in list(self._shared.live.values()):
            if sandbox.endpoint:
                await sandbox.check_alive(sandbox.endpoint)
        await self._shared.store.forget_tombstones(rules.now().timestamp())
        await reaper.sweep(self._shared.lifecycle, self._shared.store)


async def _keep_sessions(sandbox: Sandbox) -> None:
    if endpoint := await sandbox.awake():
        await sandbox.carried.keep_changes(endpoint, lambda: sandbox.endpoint is endpoint)
