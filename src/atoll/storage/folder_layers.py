"""Layers as folders of the user's, for engines without root: no limit of their size is enforced.

No file system of their own can be mounted, and no quota set, without root. What stays: no layer is
made on a disk that is nearly full, and `usage` is measured.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Final

from atoll.host import durable, own_root
from atoll.host.threads import run_to_end
from atoll.storage.capacity import Space
from atoll.storage.refusals import does_not_fit

_DRAFT: Final = ".new-"
_DEAD: Final = ".old-"

_PARTS: Final = {"upper": 0o755, "work": 0o700}
"""What overlay needs → its mode."""


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
        await run_to_end(durable.sync, self.folder.parent)
        for pattern in (f"{_DRAFT}*", f"{_DEAD}*", f".snapshots/{_DRAFT}*", f".snapshots/{_DEAD}*"):
            for left in self.folder.glob(pattern):
                await own_root.remove(left)

    async def close(self, *, unmount: bool) -> None:
        """Do nothing: nothing is open."""

    async def create(self, layer_id: str, size: int) -> None:
        """Make the folder, with the two in it that overlay needs."""
        del size
        target = self.folder / layer_id
        if not await kept(target):
            async with appearing(target) as draft:
                for name, mode in _PARTS.items():
                    (draft / name).mkdir(mode=mode)

    async def attach(self, layer_id: str) -> Path:
        """Return the folder; a copy gets what is overlay's own now."""
        folder = self.folder / layer_id
        for name, mode in _PARTS.items():
            (folder / name).mkdir(mode=mode, exist_ok=True)
        return folder

    def exists(self, layer_id: str) -> bool:
        """Tell whether the layer was made."""
        return (self.folder / layer_id).is_dir()

    async def delete(self, layer_id: str) -> None:
        """Remove the folder; once that has begun, the layer is not there any more."""
        await discard(self.folder / layer_id)

    async def usage(self, layer_id: str) -> int:
        """Return the bytes the layer takes on the disk."""
        return await own_root.usage(self.folder / layer_id / "upper")

    async def duplicate(self, layer_id: str, copy_id: str, size: int) -> None:
        """Make a layer that begins as another one is now: a copy."""
        del size
        target = self.folder / copy_id
        if not await kept(target):
            async with appearing(target) as draft:
                await own_root.copy(self.folder / layer_id / "upper", draft / "upper")
                await run_to_end(durable.sync_all, draft)

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


async def kept(target: Path) -> bool:
    """Whether *target* is there; if so, its name is on the disk, whoever gave it."""
    if not own_root.is_there(target):
        return False
    await run_to_end(durable.sync, target.parent)
    return True


@asynccontextmanager
async def appearing(target: Path) -> AsyncIterator[Path]:
    """Yield a folder that becomes *target* at the end: complete or not at all, and durable.

    What is put deeper than its own names is to be on the disk by then.
    """
    draft = target.with_name(_DRAFT + target.name)
    await own_root.remove(draft)
    try:
        draft.mkdir(mode=0o700)
        yield draft
        await run_to_end(durable.name, draft, target)
    except BaseException:
        await own_root.remove(draft)
        raise


async def discard(target: Path) -> None:
    """Remove a folder: durably not there before anything in it goes. Idempotent."""
    dead = target.with_name(_DEAD + target.name)
    await own_root.remove(dead)
    if own_root.is_there(target):
        await run_to_end(_bury, target, dead)
        await own_root.remove(dead)


def _bury(target: Path, dead: Path) -> None:
    target.rename(dead)
    durable.sync(target.parent)
