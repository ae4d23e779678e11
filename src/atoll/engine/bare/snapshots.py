"""Snapshots of the `fake` runtime: copies of directories."""

import asyncio
import shutil
from pathlib import Path


class BareSnapshots:
    """Copies of layers, beside them.

    Args:
        layers: where the layers are.
    """

    def __init__(self, layers: Path) -> None:
        self._layers = layers
        self._base = layers.with_name(layers.name + ".snapshots")
        self._base.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def take(self, layer_id: str, snapshot_id: str) -> None:
        """Copy the layer."""
        await _copy(self._layers / layer_id, self._base / snapshot_id / "upper")

    async def clone(self, snapshot_id: str, layer_id: str, size_bytes: int) -> None:
        """Copy the snapshot; *size_bytes* is not enforced."""
        await _copy(self._base / snapshot_id / "upper", self._layers / layer_id)

    async def attach(self, snapshot_id: str) -> Path:
        """Return the folder of the copy."""
        return self._base / snapshot_id

    async def usage(self, snapshot_id: str) -> int:
        """Nothing is measured."""
        return 0

    async def delete(self, snapshot_id: str) -> None:
        """Remove the copy."""
        await asyncio.to_thread(shutil.rmtree, self._base / snapshot_id, ignore_errors=True)

    async def list(self) -> list[str]:
        """Return all copies."""
        return [path.name for path in self._base.iterdir()]


async def _copy(source: Path, target: Path) -> None:
    await asyncio.to_thread(shutil.copytree, source, target, symlinks=True, dirs_exist_ok=True)
