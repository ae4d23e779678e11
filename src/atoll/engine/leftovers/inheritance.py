"""Removes what engines of this host left that are gone for good: see `registry`.

Processes first, then what they use. What cannot be removed now is tried again by the next engine
that starts; the entry stays until all of it is gone.
"""

import asyncio
from pathlib import Path

import structlog

from atoll.engine.leftovers.registry import Gone, Registry
from atoll.host import lasting
from atoll.network import abandoned as network
from atoll.network.slots import BASE as NETNS
from atoll.runtime.oci import abandoned as containers
from atoll.settings import Settings
from atoll.storage import abandoned as storage
from atoll.storage.idmap import IdRanges
from atoll.storage.rootfs import BASE as ROOTS

log = structlog.get_logger(__name__)


async def settle(
    settings: Settings, registry: Registry, *, roots: Path = ROOTS, netns: Path = NETNS
) -> int:
    """Remove what is left of every engine that is gone; return how many there were."""
    settled = 0
    with registry.gone() as engines:
        for engine in engines:
            log.info("removing what a lost engine left", engine=engine.engine_id,
                     state_dir=str(engine.state_dir))  # fmt: skip
            try:
                await _remove(settings, engine, roots, netns)
            except Exception as error:
                log.warning("cannot remove it now", engine=engine.engine_id, exc_info=error)
            else:
                registry.forget(engine)
                settled += 1
    return settled


async def _remove(settings: Settings, engine: Gone, roots: Path, netns: Path) -> None:
    await asyncio.to_thread(lasting.kill_marked, engine.engine_id)
    await containers.remove(engine.engine_id)
    await network.remove(settings.network, engine.engine_id, netns)
    await storage.remove(engine.state_dir, roots)
    ids = IdRanges(settings.runtime.id_base, settings.runtime.id_count, engine.engine_id)
    ids.keep_only(())
