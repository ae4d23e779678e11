"""What a new engine finds of a sandbox that an earlier one started."""

import structlog

from atoll.engine.commands.operations import Operations
from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.link.link import LinkError
from atoll.engine.store.record import Record
from atoll.errors import SandboxError
from atoll.wire.sandbox import State

log = structlog.get_logger(__name__)

TIMEOUT = 10.0
"""Seconds an agent has to answer an engine that came back: one that is silent must not keep the
engine from serving the others. A healthy one answers within a second under any load inside."""


async def find(life: Lifecycle, record: Record) -> Operations | None:
    """Return the operations of the start that *record* tells of; None when it is no more."""
    try:
        endpoint = life.endpoint(record)
        if not await endpoint.runtime.find(endpoint.host_ref):
            return None
        operations = Operations(endpoint, life.settings.lifecycle.orphan_grace)
        if record.state is State.RUNNING:  # a frozen agent cannot answer
            await endpoint.runtime.resume(endpoint.host_ref)  # a thaw may have been cut short
            await life.hello(endpoint, TIMEOUT)
            await operations.find_orphans()
    except (LinkError, SandboxError) as error:
        log.warning("sandbox not adopted", sandbox=record.id, reason=str(error))
        return None
    if record.in_force:
        life.parts.ids.adopt(endpoint.host_ref, record.in_force.id_base)
    return operations
