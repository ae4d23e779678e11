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
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Literal

import structlog

from atoll.errors import ResourceBusyError, from_os_error
from atoll.host import linux
from atoll.host.mounts import holding_mount, read_mounts
from atoll.settings import StorageSettings
from atoll.storage import btrfs, capacity
from atoll.storage.btrfs_layers import BtrfsLayers
from atoll.storage.btrfs_snapshots import BtrfsSnapshots
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
        self._watch: asyncio.Task[None] | None = None
        self._mounted = asyncio.Lock()  # while the store is opened again, its layers are not there
        self.snapshots = Snapshots(_snapshots(self._layers), self._mounted, self._admit)

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

    async def list(self) -> list[str]:
        """Return the ids of all layers."""
        async with self._mounted:
            return await asyncio.to_thread(self._layers.list)

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
