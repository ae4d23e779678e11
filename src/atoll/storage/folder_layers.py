"""Layers as folders of the user's, for engines without root: no limit of their size is enforced.

No file system of their own can be mounted, and no quota set, without root. What stays: no layer is
made on a disk that is nearly full, and `usage` is measured.
"""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from atoll.host import own_root
from atoll.storage.capacity import Space
from atoll.storage.refusals import does_not_fit


class FolderLayers:
    """One folder ``<id>`` a layer.

    Args:
        folder: holds them.
    """

    kind = "folders"
    failed = False  # never as a whole

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def open(self) -> None:
        """Remove what an engine that was killed had not finished."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.folder.chmod(0o700)
        for pattern in (".new-*", ".old-*", ".snapshots/.new-*"):
            for left in self.folder.glob(pattern):
                await own_root.remove(left)

    async def close(self, *, unmount: bool) -> None:
        """Do nothing: nothing is open."""

    async def create(self, layer_id: str, size: int) -> None:
        """Make the folder."""
        del size
        await self.attach(layer_id)

    async def attach(self, layer_id: str) -> Path:
        """Return the folder, with the two in it that overlay needs."""
        folder = self.folder / layer_id
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "upper").mkdir(mode=0o755, exist_ok=True)
        (folder / "work").mkdir(mode=0o700, exist_ok=True)
        return folder

    def exists(self, layer_id: str) -> bool:
        """Tell whether the layer was made."""
        return (self.folder / layer_id).is_dir()

    async def delete(self, layer_id: str) -> None:
        """Remove the folder; once that has begun, the layer is not there any more."""
        if self.exists(layer_id):
            dead = self.folder / f".old-{layer_id}"
            (self.folder / layer_id).rename(dead)
            await own_root.remove(dead)

    async def usage(self, layer_id: str) -> int:
        """Return the bytes the layer takes on the disk."""
        return await own_root.usage(self.folder / layer_id / "upper")

    async def duplicate(self, layer_id: str, copy_id: str, size: int) -> None:
        """Make a layer that begins as another one is now: a copy."""
        del size
        if self.exists(copy_id):
            return
        draft = self.folder / f".new-{copy_id}"
        await own_root.remove(draft)
        try:
            draft.mkdir(mode=0o700)
            await own_root.copy(self.folder / layer_id / "upper", draft / "upper")
            draft.rename(self.folder / copy_id)
        except BaseException:
            await own_root.remove(draft)
            raise

    async def resize(self, layer_id: str, size: int) -> None:
        """Refuse a size that what the layer has does not fit into; no other is enforced."""
        if (used := await self.usage(layer_id)) > size:
            raise does_not_fit(layer_id, used, size)

    def limit(self, layer_id: str) -> None:
        """Return None: there is none."""

    def space(self) -> Space | None:
        """Return None: there is no file that all layers are in."""

    def trim(self) -> None:
        """Do nothing: files that are deleted take nothing."""

    def list(self) -> list[str]:
        """Return the ids of all layers."""
        return [path.name for path in self.folder.glob("[!.]*")]

    async def reopen(self) -> None:
        """Do nothing: folders do not fail as a whole."""

    def refresh_limit(self, reserve: int) -> None:
        """Do nothing: there is none for all together."""

    def spare(self, layer_id: str) -> AbstractContextManager[None]:
        """Do nothing: a layer is never full while the disk is not."""
        del layer_id
        return nullcontext()
