"""Sleep that keeps processes: the work of the transitions ``freeze`` and ``thaw``.

Freezing stops the agent too. So every connection to it ends first, and nothing is asked of it until
it runs again: whoever waits for its word waits for `Sandbox.thawed`.
"""

import asyncio
from typing import TYPE_CHECKING

from atoll.engine.lifecycle import ending
from atoll.engine.link.link import Endpoint
from atoll.engine.store import record as rules
from atoll.wire.sandbox import State

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox


async def sleep(box: "Sandbox", endpoint: Endpoint, reason: str) -> None:
    """Freeze all processes, or stop the sandbox where they do not freeze in time."""
    try:
        await _freeze(box, endpoint, reason)
    except TimeoutError:
        record = box.entry.existing
        await box.shared.store.events.add(record, rules.FREEZE_FAILED, reason)
        await ending.stop(box, rules.FREEZE_FAILED)


async def _freeze(box: "Sandbox", endpoint: Endpoint, reason: str) -> None:
    await box.carried.keep(endpoint, lambda: True)
    # Recorded first: a frozen sandbox that is taken for a running one would look dead.
    await box.entry.save(state=State.FROZEN, reason=reason)
    box.shared.faults.at("freeze.recorded")
    box.thawed.clear()
    endpoint.hang_up()
    try:
        await endpoint.runtime.pause(endpoint.host_ref)
        box.shared.faults.at("freeze.paused")
    except BaseException:
        await thaw(box, endpoint)
        raise


async def thaw(box: "Sandbox", endpoint: Endpoint) -> None:
    """Let its processes run again.

    The record is written meanwhile: an engine that finds a running sandbox frozen thaws it.
    """
    await asyncio.gather(
        endpoint.runtime.resume(endpoint.host_ref), box.entry.save(state=State.RUNNING)
    )
    box.shared.faults.at("thaw.running")
    box.thawed.set()
    await box.apply(endpoint)
