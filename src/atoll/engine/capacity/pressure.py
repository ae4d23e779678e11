"""Memory pressure: when the node runs low, idle sandboxes are stopped earlier than they asked for.

The policy: below twice the reserve (`lifecycle.reserve_memory_mib`) first the warm pool goes, then
sandboxes that nothing holds awake, frozen ones too, the one that was used longest ago first, until
enough is free. Not those with `keep_alive`, nor any that was used in the last `SPARED` seconds. New
starts are refused only below the reserve itself, so that those who asked in between find room.
"""

from collections.abc import Iterable
from typing import Final

import structlog

from atoll.engine.sandbox import Sandbox
from atoll.engine.shared import Shared
from atoll.errors import SandboxError

log = structlog.get_logger(__name__)

SPARED: Final = 5.0
"""Seconds since its last use in which a sandbox is not stopped for its memory."""


def candidates(live: Iterable[Sandbox]) -> list[Sandbox]:
    """Return who may be stopped, the one that was used longest ago first."""
    found = [box for box in live if not box.wanted.keep_alive and box.activity.idle() >= SPARED]
    return sorted(found, key=lambda box: box.activity.last)


async def relieve(shared: Shared) -> int:
    """Stop idle sandboxes until there is memory again; return how many."""
    mark = shared.admission.low_memory
    stopped = 0
    if shared.admission.free().memory < mark:
        await shared.pool.give_up_memory()
        for box in candidates(shared.live.values()):
            if shared.admission.free().memory >= mark:
                break
            stopped += await _stopped(box)
    return stopped


async def _stopped(box: Sandbox) -> bool:
    try:
        if await box.give_up_memory(SPARED):
            log.warning("idle sandbox stopped for its memory", sandbox=box.id)
            return True
    except SandboxError as error:
        log.warning("idle sandbox does not stop", sandbox=box.id, reason=str(error))
    return False
