"""Which start uses which volume: one that starts have not in common has one user at a time.

A start claims its volumes before anything is mounted and gives them up when its root is gone. After
a crash the claims of what runs on are made again from the records. Nothing else is kept.
"""

from collections.abc import Iterable, Mapping

from atoll.engine.store.record import Mounted
from atoll.errors import VolumeInUseError


class Claims:
    """The volumes that are in use, by the names of starts."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, str]] = {}  # start → layer of a volume → sandbox

    def take(self, host_ref: str, sandbox: str, volumes: Iterable[Mounted]) -> None:
        """Claim *volumes* for a start of *sandbox*, all or none.

        Raises:
            VolumeInUseError: one is not in common, and another start has it.
        """
        wanted = {volume.layer_id: volume for volume in volumes}
        for volume in wanted.values():
            users = self.users(volume.layer_id, apart=host_ref)
            if users and not volume.common:
                raise in_use(volume.name, users)
        self.adopt(host_ref, sandbox, wanted)

    def adopt(self, host_ref: str, sandbox: str, layers: Iterable[str]) -> None:
        """Note what a start of an earlier engine uses."""
        if held := dict.fromkeys(layers, sandbox):
            self._held[host_ref] = held

    def release(self, host_ref: str) -> None:
        """Give up what a start had. Idempotent."""
        self._held.pop(host_ref, None)

    def holds(self, host_ref: str) -> bool:
        """Tell whether a start uses any volume."""
        return host_ref in self._held

    def users(self, layer_id: str, *, apart: str = "") -> list[str]:
        """Return the sandboxes that use a volume, but for the start *apart*."""
        starts: Mapping[str, Mapping[str, str]] = self._held
        return sorted(
            held[layer_id] for ref, held in starts.items() if layer_id in held and ref != apart
        )


def in_use(name: str, users: list[str]) -> VolumeInUseError:
    """Return the error for a volume that these sandboxes have mounted."""
    return VolumeInUseError(
        f"volume {name!r} is in use by sandbox {users[0]!r}",
        context={"volume": name, "sandboxes": users[:20]},
        suggestion="let that sandbox sleep, or create the volume with shared=True",
    )
