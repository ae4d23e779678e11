"""Memory pressure: when the node runs low, idle sandboxes are stopped earlier than they asked for.

The policy: below twice the reserve (`lifecycle.reserve_memory_mib`) first those go for whom the kernel
keeps more than `UNCOUNTED` of their own limit in what no limit counts, at work or not, then the warm pool, then
sandboxes that nothing holds awake, frozen ones too, the one that was used longest ago first, until
enough is free. Not those with `keep_alive`, nor any that was used in the last `SPARED` seconds. New
starts are refused only below the reserve itself, so that those who asked in between find room.
"""

from collections.abc import Iterable
from typing import Final

import structlog

from atoll.engine.sandbox import Sandbox
from atoll.engine.shared import Shared
from atoll.engine.store.record import MEMORY
from atoll.errors import SandboxError

log = structlog.get_logger(__name__)

SPARED: Final = 5.0
"""Seconds since its last use in which a sandbox is not stopped for its memory."""

UNCOUNTED: Final = 0.25
"""Part of a sandbox's memory that the kernel may keep for it beside the limit, in times of need."""


async def greedy(shared: Shared) -> list[Sandbox]:
    """Return who takes what nobody limits."""
    found = []
    for box in list(shared.live.values()):
        record = box.record
        if record and record.live and record.host_ref and record.in_force:
            runtime = shared.lifecycle.parts.runtime(record.in_force.level)
            used = await runtime.usage(record.host_ref)
            if used.uncounted > UNCOUNTED * record.in_force.limits.memory:
                found.append(box)
    return found


def candidates(live: Iterable[Sandbox]) -> list[Sandbox]:
    """Return who may be stopped, the one that was used longest ago first."""
    found = [box for box in live if not box.wanted.keep_alive and box.activity.idle() >= SPARED]
    return sorted(found, key=lambda box: box.activity.last)


async def relieve(shared: Shared) -> int:
    """Stop greedy, then idle sandboxes until there is memory again; return how many."""
    mark = shared.admission.low_memory
    if shared.admission.free().memory >= mark:
        return 0
    stopped = sum([await _stopped(box, None) for box in await greedy(shared)])
    if shared.admission.free().memory < mark:
        await shared.pool.give_up_memory()
        for box in candidates(shared.live.values()):
            if shared.admission.free().memory >= mark:
                break
            stopped += await _stopped(box, SPARED)
    return stopped


async def _stopped(box: Sandbox, spared: float | None) -> bool:
    """Stop *box*; a number: unless it was used in that many seconds."""
    try:
        if spared is None:
            await box.stop(MEMORY, "SIGKILL")
        elif not await box.give_up_memory(spared):
            return False
    except SandboxError as error:
        log.warning("sandbox does not stop", sandbox=box.id, reason=str(error))
        return False
    log.warning("sandbox stopped for its memory", sandbox=box.id, idle=spared is not None)
    return True
