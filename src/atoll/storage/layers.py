"""The layer store: one writable, size-limited layer a sandbox, kept until the sandbox is destroyed.

Decided at `open`: subvolumes of a btrfs in a sparse file under the state directory; the state
directory's own btrfs where its quotas are on (switching them on for a whole host is not ours to
do); a sized ext4 file a layer where the kernel has no btrfs; plain folders where the engine is not
root (only when asked for: they have no limit). Mounts survive the engine and are
adopted by the next one. Limits count what a layer refers to, so a fork counts in full.
"""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Literal

import structlog

from atoll.errors import ResourceBusyError, SandboxError, from_os_error
from atoll.host import linux
from atoll.host.mounts import holding_mount, read_mounts
from atoll.host.threads import run_to_end
from atoll.settings import StorageSettings
from atoll.storage import btrfs, capacity
from atoll.storage.btrfs_layers import BtrfsLayers
from atoll.storage.btrfs_snapshots import BtrfsSnapshots
from atoll.storage.btrfs_trees import BtrfsTrees
from atoll.storage.capacity import Space
from atoll.storage.ext4_layers import Ext4Layers
from atoll.storage.ext4_snapshots import Ext4Snapshots
from atoll.storage.folder_layers import FolderLayers
from atoll.storage.folder_snapshots import FolderSnapshots
from atoll.storage.label import label_prefix, store_key
from atoll.storage.refusals import FULL, check_id, no_capacity, typed
from atoll.storage.snapshots import Snapshots

_Kind = BtrfsLayers | Ext4Layers | FolderLayers
Backend = Literal["auto", "btrfs", "ext4", "folders"]

_GB = 10**9
_MB = 10**6
_BLOCK = 4096
"""Bytes by which a limit may be off: ext4 has whole blocks."""
_WATCH_INTERVAL = 1.0
"""Seconds between two looks at the host's free space: at 500 MB/s half the default reserve."""

_log = structlog.get_logger(__name__)


class LayerStore:
    """Makes, finds and removes writable layers. All calls may be repeated.

    Args:
        settings: `state_dir`, the size of the store and the host's reserve.
        backend: "auto", or the kind to use whatever the host could do.
    """

    def __init__(self, settings: StorageSettings, *, backend: Backend = "auto") -> None:
        self._settings = settings
        self._reserve = settings.reserve_mb * _MB
        self._layers = _choose(settings, backend)
        self._untrimmed = 0
        self._watch: asyncio.Task[None] | None = None
        self._mounted = asyncio.Lock()  # while the store is opened again, its layers are not there
        self.snapshots = Snapshots(
            _snapshots(self._layers), self._mounted, self._admit, self.has_failed
        )
        self.trees = BtrfsTrees(self._layers) if isinstance(self._layers, BtrfsLayers) else None

    @property
    def kind(self) -> str:
        """How layers are kept: btrfs, ext4 or folders."""
        return self._layers.kind

    async def open(self) -> None:
        """Make the store, or find the one that is there.

        Raises:
            NoSpaceError: there is no room to make it.
            InvalidConfigError: something else is mounted in its place.
            SandboxError: the host refused; `context` has path and errno.
        """
        state_dir = self._settings.state_dir
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            await self._layers.open()
            await self._tidy()
        except OSError as error:
            raise typed(error, state_dir) from error
        if linux.capget()[0] >> linux.CAP_SYS_RESOURCE & 1:
            _log.warning("disk limits are not enforced: CAP_SYS_RESOURCE is effective")
        self._watch = asyncio.create_task(self._follow_space(), name="layer store limit")

    async def _tidy(self) -> None:
        """Remove what a killed engine left half-made; wait with it where the disk is full."""
        try:
            await self.snapshots.open()
            if self.trees:
                await asyncio.to_thread(self.trees.sweep)
            await asyncio.to_thread(self._layers.refresh_limit, self._reserve)
        except OSError as error:
            if not self._layers.failed:
                raise
            _log.warning("the layer store failed on a full disk", reason=str(error))

    async def close(self, *, unmount: bool = False) -> None:
        """Stop watching. The store stays mounted for running sandboxes unless *unmount*."""
        if self._watch:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        await self._layers.close(unmount=unmount)

    async def create(self, layer_id: str, size_bytes: int) -> None:
        """Make an empty layer of at most *size_bytes*; an existing one gets that limit.

        Raises:
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        check_id(layer_id)
        self._admit()
        try:
            async with self._mounted:
                await self._layers.create(layer_id, size_bytes)
        except OSError as error:
            if error.errno in FULL:
                raise no_capacity(self._settings.state_dir) from error
            raise typed(error, self._settings.state_dir) from error

    async def attach(self, layer_id: str) -> Path:
        """Return the folder that holds ``upper`` and ``work`` of the layer, mounted if need be.

        Raises:
            FileNotFoundError: there is no such layer.
        """
        if not await self.exists(layer_id):
            raise from_os_error(OSError(errno.ENOENT, "no such layer"), layer_id)
        async with self._mounted:
            return await self._layers.attach(layer_id)

    def spare(self, layer_id: str) -> AbstractContextManager[None]:
        """Give a full layer what a mount of it takes, for as long as that is. Blocking."""
        return self._layers.spare(layer_id)

    async def exists(self, layer_id: str) -> bool:
        """Tell whether the layer is there; wait while the store is opened again.

        Raises:
            FilesystemError: the store is not mounted, so that nobody can tell.
        """
        check_id(layer_id)
        try:
            async with self._mounted:
                return self._layers.exists(layer_id)
        except OSError as error:
            raise typed(error, self._settings.state_dir) from error

    async def delete(self, layer_id: str) -> None:
        """Remove the layer and all files in it.

        Raises:
            ResourceBusyError: a root is mounted from it.
        """
        check_id(layer_id)
        mine = label_prefix(store_key(self._settings.state_dir), layer_id)
        users = [str(m.target) for m in read_mounts(mine) if m.source.startswith(mine)]
        if users:
            raise ResourceBusyError(f"layer {layer_id} is in use", context={"mounts": users})
        try:
            async with self._mounted:
                await self._layers.delete(layer_id)
        except OSError as error:
            raise typed(error, self._settings.state_dir) from error

    async def usage(self, layer_id: str) -> int:
        """Return the bytes the layer takes, as of the last commit (30 s at most)."""
        check_id(layer_id)
        async with self._mounted:
            return await self._layers.usage(layer_id)

    async def duplicate(self, layer_id: str, copy_id: str, size_bytes: int) -> None:
        """Make a layer that begins as another one is now, and shares nothing writable with it.

        Raises:
            FileNotFoundError: there is no such layer.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        check_id(copy_id)
        await self._changed(layer_id, self._layers.duplicate, copy_id, size_bytes)

    async def resize(self, layer_id: str, size_bytes: int) -> None:
        """Give the layer another limit: a smaller one only when what it has fits.

        Raises:
            DiskQuotaExceededError: it does not; the limit is as it was.
            ResourceBusyError: it is in use, and its kind is resized at rest only (ext4).
            FileNotFoundError: there is no such layer.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        await self._changed(layer_id, self._layers.resize, size_bytes)

    async def _changed(
        self, layer_id: str, work: Callable[..., Awaitable[None]], *args: str | int
    ) -> None:
        if not await self.exists(layer_id):
            raise from_os_error(OSError(errno.ENOENT, "no such layer"), layer_id)
        self._admit()
        try:
            async with self._mounted:
                await work(layer_id, *args)
        except OSError as error:
            if error.errno in FULL and not isinstance(error, SandboxError):
                raise no_capacity(self._settings.state_dir) from error
            raise typed(error, self._settings.state_dir) from error

    async def settle(self, layer_id: str, size_bytes: int) -> None:
        """Give the layer this limit unless it has it; raise as `resize`."""
        check_id(layer_id)
        async with self._mounted:
            limit: int | None = await run_to_end(self._layers.limit, layer_id)
        if limit is not None and abs(limit - size_bytes) >= _BLOCK:
            await self.resize(layer_id, size_bytes)

    async def space(self) -> Space | None:
        """Return what the store takes of the disk; None when it has no file of its own."""
        async with self._mounted:
            return await run_to_end(self._layers.space)

    async def trim(self) -> int:
        """Give unused blocks back to the host's disk; return by how many bytes the store shrank."""
        before = await self.space()
        if before is None or self._layers.failed:
            return 0
        # Without the lock: it may take seconds, and sandboxes start meanwhile.
        await run_to_end(self._layers.trim)
        after = await self.space()
        return max(0, before.taken - after.taken) if after else 0

    async def trim_if_worth(self) -> None:
        """Trim a store that holds much more without use than the last time left."""
        space = await self.space()
        if space and space.idle >= self._untrimmed + capacity.WORTH_TRIMMING:
            shrunk = await self.trim()
            self._untrimmed = max(0, space.idle - shrunk)
            _log.info("the layer store gave space back", bytes=shrunk)

    async def list(self) -> list[str]:
        """Return the ids of all layers."""
        async with self._mounted:
            return await asyncio.to_thread(self._layers.list)

    async def has_failed(self) -> bool:
        """Tell whether the store takes no change: it shut itself, or is being opened again."""
        return await asyncio.to_thread(lambda: self._layers.failed)

    async def is_shut(self) -> bool:
        """Tell whether the store failed on a full disk and could be opened again now."""
        return await asyncio.to_thread(lambda: self._layers.failed and not self._disk_is_full())

    async def reopen(self) -> None:
        """Open a store that `is_shut` again, as of its last commit.

        Raises:
            ResourceBusyError: a root is still mounted from it.
        """
        try:
            async with self._mounted:
                await self._layers.reopen()
        except OSError as error:
            raise typed(error, self._settings.state_dir) from error

    def _disk_is_full(self) -> bool:
        return capacity.free_bytes(os.statvfs(self._settings.state_dir)) < self._reserve

    def _admit(self) -> None:
        if self._disk_is_full():
            raise no_capacity(self._settings.state_dir)

    async def _follow_space(self) -> None:
        told = ""
        while True:
            await asyncio.sleep(_WATCH_INTERVAL)
            try:
                await asyncio.to_thread(self._layers.refresh_limit, self._reserve)
                told = ""
            except OSError as error:
                if str(error) != told:
                    _log.warning("the layer store's limit cannot be set", error=str(error))
                told = str(error)


def _choose(settings: StorageSettings, backend: Backend) -> _Kind:
    folder = settings.state_dir / "layers"
    if backend == "folders":
        return FolderLayers(folder)
    if backend == "ext4" or (backend == "auto" and not _kernel_has_btrfs()):
        return Ext4Layers(folder)
    own = backend == "auto" and _has_quotas(settings.state_dir)
    image = None if own else settings.state_dir / "layers.btrfs"
    return BtrfsLayers(folder, image, settings.layer_store_gb * _GB)


def _snapshots(layers: _Kind) -> BtrfsSnapshots | Ext4Snapshots | FolderSnapshots:
    if isinstance(layers, FolderLayers):
        return FolderSnapshots(layers)
    return BtrfsSnapshots(layers) if isinstance(layers, BtrfsLayers) else Ext4Snapshots(layers)


def _kernel_has_btrfs() -> bool:
    """Ask the kernel, which loads the module if there is one."""
    try:
        os.close(linux.fsopen("btrfs"))
    except OSError:
        return False
    return True


def _has_quotas(state_dir: Path) -> bool:
    existing = next(p for p in (state_dir, *state_dir.parents) if p.exists())
    holder = holding_mount(existing.resolve(), read_mounts())
    return holder.fstype == "btrfs" and btrfs.Sysfs.of_device(holder.source).quota_enabled()
