"""Compares the store with what really exists, and removes what nobody owns.

What exists is listed first and the owners are read afterwards: a start records its name before it
makes anything, so whatever is listed and not owned by then is nobody's.
"""

from typing import Protocol

import structlog

from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.storage import copies
from atoll.engine.store.store import Store


class Lists(Protocol):
    """A component that tells what exists."""

    async def list(self) -> list[str]:
        """Return the host_ref of everything there is."""


log = structlog.get_logger(__name__)


async def sweep(lifecycle: Lifecycle, store: Store) -> int:
    """Remove every container, root, network and layer without an owner; return how many.

    A component that cannot list is skipped and looked at again the next time.
    """
    removed = await _starts(lifecycle, store)
    return removed + await _layers(lifecycle, store)


async def _starts(lifecycle: Lifecycle, store: Store) -> int:
    parts, found = lifecycle.parts, set[str]()
    sources: list[Lists] = [*parts.drivers(), parts.roots, parts.networks]
    for source in sources:
        try:
            found.update(await source.list())
        except Exception as error:
            log.warning("cannot list", source=type(source).__name__, exc_info=error)
    directory = lifecycle.settings.storage.state_dir / "run"
    found.update(path.name for path in directory.iterdir() if path.is_dir())
    orphans = found - await store.host_refs() - lifecycle.building
    if orphans:
        await store.catch_up()
        orphans -= await store.host_refs()
    for host_ref in orphans:
        log.info("removing an orphan", host_ref=host_ref)
        await lifecycle.remove(host_ref)
    return len(orphans)


async def orphaned_layers(lifecycle: Lifecycle, store: Store) -> set[str]:
    """Return the layers that no record, start, warm container or volume has."""
    found = set(await lifecycle.parts.layers.list())
    # Looked at before the store is: what leaves it is in the store by then.
    building = set(lifecycle.building)
    await store.catch_up()
    owned = await store.layers() | copies.of_starts(found, await store.host_refs())
    return found - owned - building


async def _layers(lifecycle: Lifecycle, store: Store) -> int:
    try:
        orphans = await orphaned_layers(lifecycle, store)
    except Exception as error:  # the store failed on a full disk; it is opened again later
        log.warning("cannot list", source="layers", exc_info=error)
        return 0
    for layer_id in orphans:
        log.info("removing an orphaned layer", layer=layer_id)
        try:
            await lifecycle.parts.layers.delete(layer_id)
        except Exception as error:
            log.warning("cannot delete", layer=layer_id, exc_info=error)
    return len(orphans)
