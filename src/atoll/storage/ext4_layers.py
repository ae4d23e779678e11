"""Layers as one sized ext4 file each, for kernels without btrfs: slower, and no cheap snapshots.

The file is sparse and keeps its journal; it is mounted by loop while a sandbox runs on it.
"""

import os
import struct
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path

from atoll.errors import NoSpaceError, ResourceBusyError
from atoll.host import durable, linux, process
from atoll.host.mounts import mount_at, read_mounts, stop_propagation
from atoll.host.threads import run_to_end
from atoll.storage import loop
from atoll.storage.capacity import Space
from atoll.storage.refusals import does_not_fit

SUFFIX = ".ext4"
_BLOCK = 4096
_SUPERBLOCK = 1024  # where it begins, in bytes
_FLAGS = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOATIME


class Ext4Layers:
    """One file ``<id>.ext4`` a layer, mounted at ``<id>``.

    Args:
        folder: holds files and mount points.
    """

    kind = "ext4"
    failed = False  # of one layer only

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def open(self) -> None:
        """Remove what an engine that was killed had not finished."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.folder.chmod(0o700)
        stop_propagation(self.folder)
        for draft in self.folder.glob(".new-*"):
            draft.unlink()

    async def close(self, *, unmount: bool) -> None:
        """Stop using the layers; they stay mounted unless *unmount*."""
        if unmount:
            for layer_id in self.list():
                await run_to_end(self._detach, layer_id)
            while mount_at(self.folder, read_mounts()):  # is_mount overlooks a bind of itself
                linux.umount(self.folder)

    async def create(self, layer_id: str, size: int) -> None:
        """Make the file system; it appears complete or not at all. 30 ms."""
        if self.exists(layer_id):
            return
        draft = self.folder / f".new-{layer_id}"
        try:
            with draft.open("wb") as file:
                file.truncate(size)
            lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
            done = await process.run(
                ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", lazy, "-b", str(_BLOCK), draft)
            )
            if done.code:
                raise NoSpaceError(f"mkfs.ext4: {done.message}", context={"path": str(draft)})
            await run_to_end(durable.name, draft, self.file(layer_id))
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    async def attach(self, layer_id: str) -> Path:
        """Mount the layer unless it is, and return its folder."""
        return await run_to_end(self._attach, layer_id)

    def exists(self, layer_id: str) -> bool:
        """Tell whether the layer was made."""
        return self.file(layer_id).exists()

    async def delete(self, layer_id: str) -> None:
        """Unmount the layer and remove its file."""
        await run_to_end(self._detach, layer_id)
        self.file(layer_id).unlink(missing_ok=True)

    async def usage(self, layer_id: str) -> int:
        """Return the bytes the layer's file takes on the disk."""
        return self.file(layer_id).stat().st_blocks * 512

    async def duplicate(self, layer_id: str, copy_id: str, size: int) -> None:
        """Make a layer that begins as another one is now, and keeps its size: a copy."""
        del size
        if self.exists(copy_id):
            return
        await run_to_end(durable.sync_all, await self.attach(layer_id))
        await copy(self.file(layer_id), self.file(copy_id))

    async def resize(self, layer_id: str, size: int) -> None:
        """Make the file system of another size; nothing may use it meanwhile.

        It is done in a copy, as `resize2fs` that is killed leaves neither the old nor the new. In a
        mounted one it would need CAP_SYS_RESOURCE, which the engine gives up.
        """
        await run_to_end(self._free, layer_id)
        file, size = self.file(layer_id), size // _BLOCK * _BLOCK
        used = file.stat().st_blocks * 512
        async with _replaced(file, file) as draft:
            if size > draft.stat().st_size:
                os.truncate(draft, size)
            done = await process.run(("resize2fs", "-f", draft, f"{size // 1024}K"))
            if done.code:
                raise does_not_fit(layer_id, used, size)
            os.truncate(draft, size)

    def _free(self, layer_id: str) -> None:
        file = self.file(layer_id)
        try:
            self._detach(layer_id)
            device = loop.find(file)
        except OSError as error:
            raise ResourceBusyError(f"layer {layer_id} is in use") from error
        if device:
            os.close(device[0])
            raise ResourceBusyError(
                f"layer {layer_id} is in use",
                suggestion="let the sandboxes that use it sleep: ext4 is resized at rest only",
            )

    def limit(self, layer_id: str) -> int:
        """Return the size of the file system in bytes."""
        with self.file(layer_id).open("rb") as file:
            blocks = os.pread(file.fileno(), 4, _SUPERBLOCK + 4)
        return int(struct.unpack("<I", blocks)[0]) * _BLOCK

    def space(self) -> Space | None:
        """Return None: there is no file that all layers are in."""

    def trim(self) -> None:
        """Do nothing: the file systems give blocks back as they become unused."""

    def list(self) -> list[str]:
        """Return the ids of all layers."""
        return [f.name.removesuffix(SUFFIX) for f in self.folder.glob(f"[!.]*{SUFFIX}")]

    async def reopen(self) -> None:
        """Do nothing: each layer is a file system of its own."""

    def refresh_limit(self, reserve: int) -> None:
        """Do nothing: a full disk harms only the sandbox that writes to it."""

    def spare(self, layer_id: str) -> AbstractContextManager[None]:
        """Do nothing: a full file system has what it needs to be mounted."""
        del layer_id
        return nullcontext()

    def file(self, layer_id: str) -> Path:
        """Return where the layer's file system is."""
        return self.folder / (layer_id + SUFFIX)

    def _attach(self, layer_id: str) -> Path:
        target = self.folder / layer_id
        target.mkdir(mode=0o700, exist_ok=True)
        if not target.is_mount():
            device_fd, device = loop.attach(self.file(layer_id))
            try:
                linux.mount(device, target, "ext4", _FLAGS, "discard")
            finally:
                os.close(device_fd)
        (target / "upper").mkdir(mode=0o755, exist_ok=True)
        (target / "work").mkdir(mode=0o700, exist_ok=True)
        return target

    def _detach(self, layer_id: str) -> None:
        target = self.folder / layer_id
        while target.is_mount():
            linux.umount(target)
        with suppress(FileNotFoundError):
            target.rmdir()


async def copy(source: Path, target: Path) -> None:
    """Copy the file of a file system; *target* appears complete or not at all.

    Raises:
        NoSpaceError: there is no room for it.
    """
    async with _replaced(source, target):
        pass


@asynccontextmanager
async def _replaced(source: Path, target: Path) -> AsyncIterator[Path]:
    """Yield a copy, with its holes and where the disk can sharing blocks, that becomes *target*."""
    draft = target.parent / f".new-{target.name}"
    try:
        argv = ("cp", "--reflink=auto", "--sparse=always", "--", source, draft)
        done = await process.run(argv)
        if done.code:
            raise NoSpaceError(f"cp: {done.message}", context={"path": str(draft)})
        yield draft
        await run_to_end(durable.name, draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
