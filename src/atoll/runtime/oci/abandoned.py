"""Ends the containers of an engine whose records are lost: their cgroups name them."""

import asyncio
from pathlib import Path

from atoll.runtime.oci import cgroup
from atoll.runtime.oci.cgroup import Hierarchies


async def remove(engine_id: str, hierarchies: Hierarchies | None = None) -> None:
    """Kill every process of the engine's sandboxes and remove their groups.

    Raises:
        ContainerUnavailableError: a process could not be ended.
    """
    await asyncio.to_thread(_remove, engine_id, hierarchies or cgroup.mounted())


def _remove(engine_id: str, hierarchies: Hierarchies) -> None:
    for host_ref in sorted(_host_refs(engine_id, hierarchies)):
        group = cgroup.of(hierarchies, engine_id, host_ref)
        cgroup.kill(group)
        group.remove()


def _host_refs(engine_id: str, hierarchies: Hierarchies) -> set[str]:
    mounts: set[Path] = set(hierarchies.v1.values())
    if hierarchies.v2:
        mounts.add(hierarchies.v2)
    found = set[str]()
    for mount in mounts:
        folder = mount / cgroup.ROOT / engine_id
        if folder.is_dir():
            found |= {path.name for path in folder.iterdir() if path.is_dir()}
    return found
