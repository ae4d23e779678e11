"""Roots of sandboxes for engines without root: described here, mounted by who starts the sandbox."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from atoll.host import overlay
from atoll.storage.layers import LayerStore


class FolderRoots:
    """Mount points ``<run>/<host_ref>/rootfs``, each with a description. All calls may be repeated.

    Args:
        run: the directory of all starts.
        layers: where the writable layers are; open.
    """

    def __init__(self, run: Path, layers: LayerStore) -> None:
        self._run = run
        self._layers = layers

    async def mount(
        self, host_ref: str, lowers: Sequence[Path], layer_id: str, id_base: int, id_count: int
    ) -> Path:
        """Describe the root of *host_ref* and return its mount point; ids are the user's only."""
        del id_base, id_count
        layer = await self._layers.attach(layer_id)
        root = self._root(host_ref)
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Overlay refuses a layer that is listed twice; the upper occurrence hides the lower one.
        distinct = tuple(dict.fromkeys(map(str, lowers)))
        made_of = overlay.Description(distinct, str(layer / "upper"), str(layer / "work"))
        overlay.write(root, made_of)
        return root

    async def attach(self, host_ref: str, target: str, layer_id: str, *, read_only: bool) -> None:
        """Have the files of another layer appear at *target* in a root that is described.

        Raises:
            FileNotFoundError: there is no such layer.
        """
        layer = await self._layers.attach(layer_id)
        root = self._root(host_ref)
        known = overlay.read(root)
        added = overlay.Attached(str(layer / "upper"), target, read_only)
        attached = (*(one for one in known.attached if one.target != target), added)
        overlay.write(root, msgspec.structs.replace(known, attached=attached))

    async def unmount(self, host_ref: str) -> None:
        """Forget the description: the mount went with the sandbox."""
        root = self._root(host_ref)
        overlay.file(root).unlink(missing_ok=True)
        if root.exists():
            root.rmdir()

    async def list(self) -> list[str]:
        """Return the host_ref of every root that is described."""
        return sorted(path.parent.name for path in self._run.glob("*/rootfs.json"))

    def _root(self, host_ref: str) -> Path:
        return self._run / host_ref / "rootfs"
