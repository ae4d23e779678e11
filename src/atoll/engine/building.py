"""Image builds for callers: what they run has the network of a sandbox, not the host's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from atoll.engine.egress.stored import Egress
from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.images.build import BuildNetwork
from atoll.wire.egress import EgressDefaults

log = structlog.get_logger(__name__)


@asynccontextmanager
async def network(life: Lifecycle, name: str) -> AsyncIterator[BuildNetwork | None]:
    """Give a build a network slot; None: the runtime has no networks of its own.

    Args:
        life: the components.
        name: of the slot; unique on this host.

    Raises:
        ContainerUnavailableError: there is none left.
    """
    networks = life.parts.networks
    life.building.add(name)  # before it exists: the reaper must not take it for an orphan
    try:
        slot = await networks.acquire(name)
        everything = life.egress.policy(("build", name), Egress(), EgressDefaults(), internet=True)
        await life.egress.enforce(name, everything)
        yield BuildNetwork(slot.netns, slot.nameservers) if slot.netns else None
    finally:
        try:
            await life.egress.forget(name)
            await networks.release(name)
        except Exception as error:
            log.warning("the network of a build is left to the reaper", exc_info=error)
        life.building.discard(name)
