"""Snapshots of layers as copies of their ext4 files, for kernels without btrfs.

A copy takes time and space in proportion to what is in the layer, unless the disk below can share
blocks (XFS). Processes of the sandbox are frozen meanwhile, so only the file system itself may be
in the middle of something: its journal, replayed when the copy is made, makes that whole.
"""

import os
from pathlib import Path

from atoll.host import durable, linux
from atoll.host.threads import run_to_end
from atoll.storage import identity, loop
from atoll.storage.ext4_layers import SUFFIX, Ext4Layers, copy

_FLAGS = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOATIME


class Ext4Snapshots:
    """One file ``.snapshots/<id>.ext4`` a snapshot, mounted read-only at ``.snapshots/<id>``.

    Args:
        layers: where they come from and go to.
    """

    def __init__(self, layers: Ext4Layers) -> None:
        self._layers = layers
        self.folder = layers.folder / ".snapshots"

    def sweep(self) -> None:
        """Remove what an engine that was killed had not finished."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for draft in self.folder.glob(".new-*"):
            draft.unlink()

    async def take(self, layer_id: str, snapshot_id: str) -> None:
        """Keep the layer as it is now; the snapshot appears complete or not at all."""
        if self.exists(snapshot_id):
            return
        layer = await self._layers.attach(layer_id)
        await run_to_end(durable.sync_all, layer)
        await copy(self._layers.file(layer_id), self._file(snapshot_id))

    async def clone(self, snapshot_id: str, layer_id: str, size: int) -> None:
        """Make a layer that begins as the snapshot; it keeps that one's size."""
        del size
        if not self._layers.exists(layer_id):
            await copy(self._file(snapshot_id), self._layers.file(layer_id))
            identity.forget(await self._layers.attach(layer_id) / "upper")

    async def attach(self, snapshot_id: str) -> Path:
        """Mount the snapshot unless it is, and return its folder."""
        return await run_to_end(self._attach, snapshot_id)

    async def delete(self, snapshot_id: str) -> None:
        """Unmount the snapshot and remove its file."""
        await run_to_end(self._detach, snapshot_id)
        self._file(snapshot_id).unlink(missing_ok=True)

    def usage(self, snapshot_id: str) -> int:
        """Return the bytes the snapshot's file takes on the disk."""
        return self._file(snapshot_id).stat().st_blocks * 512

    def exists(self, snapshot_id: str) -> bool:
        """Tell whether the snapshot was taken."""
        return self._file(snapshot_id).exists()

    def list(self) -> list[str]:
        """Return the ids of all snapshots."""
        return [f.name.removesuffix(SUFFIX) for f in self.folder.glob(f"[!.]*{SUFFIX}")]

    def _file(self, snapshot_id: str) -> Path:
        return self.folder / (snapshot_id + SUFFIX)

    def _attach(self, snapshot_id: str) -> Path:
        target = self.folder / snapshot_id
        target.mkdir(mode=0o700, exist_ok=True)
        if not target.is_mount():
            device_fd, device = loop.attach(self._file(snapshot_id))
            try:
                linux.mount(device, target, "ext4", _FLAGS | linux.MS_RDONLY)
            finally:
                os.close(device_fd)
        return target

    def _detach(self, snapshot_id: str) -> None:
        target = self.folder / snapshot_id
        while target.is_mount():
            linux.umount(target)
        if target.exists():
            target.rmdir()
