"""Snapshots of layers as read-only subvolumes beside them: their cost does not depend on size."""

from pathlib import Path

from atoll.host.threads import run_to_end
from atoll.storage import btrfs, identity
from atoll.storage.btrfs_layers import SNAPSHOTS, UNFINISHED, BtrfsLayers


class BtrfsSnapshots:
    """One read-only subvolume a snapshot.

    Args:
        layers: where they come from and go to.
    """

    def __init__(self, layers: BtrfsLayers) -> None:
        self._layers = layers
        self.folder = layers.folder / SNAPSHOTS

    def sweep(self) -> None:
        """Remove what an engine that was killed had not finished."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        btrfs.delete_all(self.folder, f"{UNFINISHED}*")

    async def take(self, layer_id: str, snapshot_id: str) -> None:
        """Keep the layer as it is now; the snapshot appears complete or not at all."""
        await run_to_end(self._take, layer_id, snapshot_id)

    async def clone(self, snapshot_id: str, layer_id: str, size: int) -> None:
        """Make a layer of at most *size* bytes that begins as the snapshot."""
        await run_to_end(self._clone, snapshot_id, layer_id, size)

    async def attach(self, snapshot_id: str) -> Path:
        """Return the folder of the snapshot; there is nothing to mount."""
        return self.folder / snapshot_id

    async def delete(self, snapshot_id: str) -> None:
        """Unlink the snapshot; what only it holds becomes free in the background."""
        await run_to_end(self._delete, snapshot_id)

    def usage(self, snapshot_id: str) -> int:
        """Return the bytes the snapshot refers to, metadata included."""
        return self._layers.used(self.folder / snapshot_id)

    def exists(self, snapshot_id: str) -> bool:
        """Tell whether the snapshot was taken; raise as `BtrfsLayers.holds`."""
        return self._layers.holds(self.folder / snapshot_id)

    def list(self) -> list[str]:
        """Return the ids of all snapshots."""
        return [p.name for p in self.folder.glob("[!.]*") if btrfs.is_subvolume(p)]

    def _take(self, layer_id: str, snapshot_id: str) -> None:
        if self.exists(snapshot_id):
            return
        with btrfs.opened(self.folder) as fd:
            # One step, and on the disk when the call returns; a name given later would not be.
            btrfs.snapshot(fd, snapshot_id, self._layers.folder / layer_id, read_only=True)

    def _clone(self, snapshot_id: str, layer_id: str, size: int) -> None:
        layers, draft = self._layers, UNFINISHED + layer_id
        if layers.exists(layer_id):
            return
        with layers.opened() as fd:
            layers.discard(fd, draft)
            btrfs.snapshot(fd, draft, self.folder / snapshot_id, read_only=False)
            path = layers.folder / draft
            # Given separately: the kernel overrides a limit in the call with that of the source.
            btrfs.limit_group(fd, btrfs.subvolume_id(path), size)
            identity.forget(path / "upper")
            layers.name(fd, draft, layer_id)

    def _delete(self, snapshot_id: str) -> None:
        if self.exists(snapshot_id):
            with btrfs.opened(self.folder) as fd:
                btrfs.delete_subvolume(fd, snapshot_id)
