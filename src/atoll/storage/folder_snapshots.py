"""Snapshots of layers that are folders: copies, by shared blocks where the file system can.

A copy takes time and space in proportion to what is in the layer elsewhere (ext4). Processes of
the sandbox are stopped meanwhile.
"""

from pathlib import Path

from atoll.host import durable, own_root
from atoll.host.threads import run_to_end
from atoll.storage import identity
from atoll.storage.folder_layers import FolderLayers, appearing, discard, kept

_SIZE = "size"
"""File with the bytes that a copy took when it was made: a snapshot does not change."""


class FolderSnapshots:
    """One folder ``.snapshots/<id>`` a snapshot.

    Args:
        layers: where they come from and go to.
    """

    def __init__(self, layers: FolderLayers) -> None:
        self._layers = layers
        self.folder = layers.folder / ".snapshots"

    def sweep(self) -> None:
        """Make the folder; `FolderLayers.open` removes what was not finished."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        durable.sync(self.folder.parent)

    async def take(self, layer_id: str, snapshot_id: str) -> None:
        """Keep the layer as it is now; the snapshot appears complete or not at all."""
        await self._copy(self._layers.folder / layer_id, self.folder / snapshot_id)

    async def clone(self, snapshot_id: str, layer_id: str, size: int) -> None:
        """Make a layer that begins as the snapshot."""
        del size
        await self._copy(self.folder / snapshot_id, self._layers.folder / layer_id)

    async def _copy(self, source: Path, target: Path) -> None:
        """Copy what the layer holds; what is overlay's own begins anew."""
        if await kept(target):
            return
        async with appearing(target) as draft:
            await own_root.copy(source / "upper", draft / "upper")
            identity.forget(draft / "upper")
            (draft / _SIZE).write_text(str(await own_root.usage(draft / "upper")))
            await run_to_end(durable.sync_all, draft)

    async def attach(self, snapshot_id: str) -> Path:
        """Return the snapshot's folder."""
        return self.folder / snapshot_id

    async def delete(self, snapshot_id: str) -> None:
        """Remove the snapshot."""
        await discard(self.folder / snapshot_id)

    def usage(self, snapshot_id: str) -> int:
        """Return the bytes the snapshot takes on the disk."""
        return int((self.folder / snapshot_id / _SIZE).read_text())

    def exists(self, snapshot_id: str) -> bool:
        """Tell whether the snapshot was taken."""
        return (self.folder / snapshot_id).is_dir()

    def list(self) -> list[str]:
        """Return the ids of all snapshots."""
        return [path.name for path in self.folder.glob("[!.]*")]
