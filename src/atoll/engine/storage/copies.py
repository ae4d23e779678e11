"""Copies of private volumes: each start writes to one of its own, which goes with the start.

So nothing that a sandbox writes can reach another one, nor itself after it slept: what a volume
has is changed by calls to the engine only. A copy is named by its start and its place in the order
of mounts; nothing is recorded of it. What a crash leaves is found by that name.
"""

from collections.abc import Iterable, Mapping

from atoll.engine.parts import Layers
from atoll.engine.store.record import Mounted, Record
from atoll.errors import SandboxNotFoundError, ValidationFailedError

_PREFIX = "cow-"


def names(host_ref: str, volumes: Mapping[str, Mounted]) -> dict[str, str]:
    """Return the layers of a start's copies, by path inside."""
    private = [path for path, volume in volumes.items() if volume.private]
    return {path: f"{_PREFIX}{host_ref}-{number}" for number, path in enumerate(private)}


def of_sandbox(record: Record | None, sandbox: str, volume: str) -> tuple[Mounted, str]:
    """Return a volume as a sandbox that runs has it mounted, and the layer of its copy.

    Raises:
        SandboxNotFoundError: there is no such sandbox.
        ValidationFailedError: it does not run, or not with a copy of this volume.
    """
    if record is None:
        raise SandboxNotFoundError(f"no sandbox {sandbox!r}", context={"sandbox": sandbox})
    volumes = record.in_force.volumes if record.in_force and record.live else {}
    for path, copy_id in names(record.host_ref or "", volumes).items():
        if volumes[path].name == volume:
            return volumes[path], copy_id
    raise ValidationFailedError(
        f"sandbox {sandbox!r} does not run with a copy of volume {volume!r}",
        context={"field": "sandbox", "volume": volume},
        suggestion="publish while it runs: its copy goes when it sleeps",
    )


async def make(layers: Layers, host_ref: str, volumes: Mapping[str, Mounted]) -> None:
    """Make the copies that a start mounts."""
    for path, copy_id in names(host_ref, volumes).items():
        await layers.duplicate(volumes[path].layer_id, copy_id, volumes[path].size)


async def drop(layers: Layers, host_ref: str) -> None:
    """Delete the copies of a start whose root is unmounted. Idempotent."""
    number = 0
    while await layers.exists(f"{_PREFIX}{host_ref}-{number}"):
        number += 1
    for left in reversed(range(number)):  # from the end: one that is cut short leaves no gap
        await layers.delete(f"{_PREFIX}{host_ref}-{left}")


def of_starts(layer_ids: Iterable[str], host_refs: Iterable[str]) -> set[str]:
    """Return which layers are copies of these starts."""
    starts = set(host_refs)
    return {
        layer_id
        for layer_id in layer_ids
        if layer_id.startswith(_PREFIX)
        and layer_id.removeprefix(_PREFIX).rpartition("-")[0] in starts
    }
