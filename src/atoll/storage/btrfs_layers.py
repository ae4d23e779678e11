"""Layers as subvolumes of one btrfs: a sparse file mounted by loop, or the state dir's own."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from atoll.errors import FilesystemError, InvalidConfigError, NoSpaceError
from atoll.host import linux, process
from atoll.host.mounts import mount_at, read_mounts, stop_propagation
from atoll.host.threads import run_to_end
from atoll.storage import btrfs, capacity, loop
from atoll.storage.capacity import Space
from atoll.storage.refusals import does_not_fit

UNFINISHED = ".new-"
SNAPSHOTS = ".snapshots"
"""Where `btrfs_snapshots` has its subvolumes, among those of the layers."""

TREES = ".trees"
"""Where `btrfs_trees` has its subvolumes."""

SPARE = 16 << 20
"""Bytes over its limit that a full layer may take while it is mounted: the kernel reserves for the
worst case, and what it uses is less than one."""

_MOUNT_FLAGS = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOATIME


class BtrfsLayers:
    """One subvolume a layer, with ``upper`` and ``work`` in it and a quota group that limits it.

    Args:
        folder: where the subvolumes appear.
        image: the sparse file; None: *folder* lies on a btrfs with quotas already.
        size: bytes of the sparse file; only ever grown.
    """

    kind = "btrfs"

    def __init__(self, folder: Path, image: Path | None, size: int) -> None:
        self.folder = folder
        self.image = image
        self.size = size
        self._total = 0
        self._shown: btrfs.Sysfs | None = None

    async def open(self) -> None:
        """Mount the store, or adopt the mount of an engine that was killed."""
        if self.image and not self.image.exists():
            await self._format(self.image)
        await run_to_end(self._mount)

    async def close(self, *, unmount: bool) -> None:
        """Stop using the store; the mount stays unless *unmount*."""
        if unmount:
            await run_to_end(self._unmount)

    async def create(self, layer_id: str, size: int) -> None:
        """Make the layer; it appears complete or not at all."""
        await run_to_end(self._create, layer_id, size)

    async def attach(self, layer_id: str) -> Path:
        """Return the folder of the layer; there is nothing to mount."""
        self._refuse_read_only()
        return self.folder / layer_id

    def exists(self, layer_id: str) -> bool:
        """Tell whether the layer was made; raise as `holds`."""
        return self.holds(self.folder / layer_id)

    def holds(self, path: Path) -> bool:
        """Tell whether there is a subvolume at *path* of the store.

        Raises:
            FilesystemError: the store is not mounted, so that nobody can tell.
        """
        if btrfs.is_subvolume(path):
            return True
        if not mount_at(self.folder, read_mounts()):
            raise self._unmounted()
        return False

    def _unmounted(self) -> FilesystemError:
        return FilesystemError(
            f"the layer store is not mounted at {self.folder}",
            context={"path": str(self.folder)},
            suggestion="the engine mounts it again; files are not lost",
        )

    async def delete(self, layer_id: str) -> None:
        """Unlink the layer; its space comes back in the background."""
        await run_to_end(self._delete, layer_id)

    async def usage(self, layer_id: str) -> int:
        """Return the bytes the layer refers to, metadata included."""
        return await run_to_end(self.used, self.folder / layer_id)

    async def duplicate(self, layer_id: str, copy_id: str, size: int) -> None:
        """Make a layer that begins as another one is now; its cost does not depend on size."""
        await run_to_end(self._duplicate, layer_id, copy_id, size)

    async def resize(self, layer_id: str, size: int) -> None:
        """Give the layer another limit, if what it has fits."""
        await run_to_end(self._resize, layer_id, size)

    def limit(self, layer_id: str) -> int:
        """Return how many bytes the layer may refer to."""
        return self._sysfs().limit(btrfs.subvolume_id(self.folder / layer_id))

    def space(self) -> Space | None:
        """Return what the store's file takes and what layers use of it; None without a file."""
        if self.image is None:
            return None
        taken = self.image.stat().st_blocks * 512
        return Space(self.size, taken, self._sysfs().used(btrfs.STORE_GROUP))

    def trim(self) -> None:
        """Give the blocks that nothing uses any more back to the host's disk. Blocking."""
        if self.image:
            with self.opened() as fd:
                linux.fstrim(fd)

    def list(self) -> list[str]:
        """Return the ids of all layers."""
        with os.scandir(self.folder) as entries:
            names = [e.name for e in entries if not e.name.startswith(".")]
        return [n for n in names if self.exists(n)]

    def refresh_limit(self, reserve: int) -> None:
        """Follow what the disk has left with the limit of all layers together."""
        free = capacity.free_bytes(os.statvfs(self.image.parent if self.image else self.folder))
        allocated = self.image.stat().st_blocks * 512 if self.image else 0
        used = self._sysfs().used(btrfs.STORE_GROUP)
        wanted = capacity.store_limit(used, allocated, free, reserve)
        if not self._total or capacity.is_worth_setting(self._total, wanted, free, reserve):
            with self.opened() as fd:
                btrfs.limit_group(fd, btrfs.STORE_GROUP, wanted)
            self._total = wanted

    async def _format(self, image: Path) -> None:
        draft = image.with_suffix(".new")
        with draft.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.truncate(self.size)
        # One copy of metadata: the file lies on one disk, a second copy there protects nothing.
        argv = ("mkfs.btrfs", "-q", "-f", "--nodiscard", "-m", "single", "-d", "single", draft)
        done = await process.run(argv)
        if done.code:
            draft.unlink()
            raise NoSpaceError(
                f"the layer store cannot be made: {done.message}",
                context={"path": str(image), "bytes": self.size},
                suggestion="free some space, or set storage.state_dir to another disk",
            )
        draft.rename(image)

    def _mount(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if self.image:
            self._mount_image(self.image)
        elif not mount_at(self.folder, read_mounts()):
            linux.mount(self.folder, self.folder, flags=linux.MS_BIND)
            linux.mount("", self.folder, flags=linux.MS_PRIVATE)
            remount = linux.MS_REMOUNT | linux.MS_BIND | _MOUNT_FLAGS
            linux.mount("", self.folder, flags=remount)
        self._refuse_read_only()
        self.folder.chmod(0o700)
        with self.opened() as fd:
            btrfs.enable_quota(fd)
            self._sweep_drafts(fd)
            if self.image:
                self._sweep_groups(fd)

    @property
    def failed(self) -> bool:
        """Whether the kernel has shut the store: its file could not grow on a full disk.

        So is one that is not mounted: for as long as anybody has the old mount, also a process on
        its way to another namespace, the kernel refuses a new one.
        """
        if not mount_at(self.folder, read_mounts()):
            return True
        return bool(os.statvfs(self.folder).f_flag & os.ST_RDONLY)

    async def reopen(self) -> None:
        """Mount the store anew, as of its last commit; nothing uses it any more."""
        await run_to_end(self._remount)

    def _remount(self) -> None:
        self._unmount()
        self._shown, self._total = None, 0
        self._mount()

    def _refuse_read_only(self) -> None:
        if self.failed:
            raise FilesystemError(
                f"the layer store at {self.folder} has become read-only",
                context={"path": str(self.folder)},
                suggestion="the host's disk was full: the engine opens it again when there is space",
            )

    def _mount_image(self, image: Path) -> None:
        device_fd, device = self._attach(image)
        try:
            entry = mount_at(self.folder, read_mounts())
            if entry and entry.fstype == "btrfs" and entry.source != device:
                raise InvalidConfigError(
                    f"{self.folder} is mounted from {entry.source}, not from {image}",
                    suggestion="unmount it, or choose another storage.state_dir",
                )
            if entry and entry.source == device:
                return
            stop_propagation(self.folder)
            linux.mount(device, self.folder, "btrfs", _MOUNT_FLAGS, "discard=async")
            linux.mount("", self.folder, flags=linux.MS_PRIVATE)
            with self.opened() as fd:
                btrfs.resize_to_device(fd)
        finally:
            os.close(device_fd)

    def _attach(self, image: Path) -> tuple[int, str]:
        grown = image.stat().st_size < self.size
        if grown:
            os.truncate(image, self.size)
        device_fd, device = loop.attach(image)
        if grown:
            loop.refresh_size(device_fd)
        return device_fd, device

    def _unmount(self) -> None:
        while mount_at(self.folder, read_mounts()):
            linux.umount(self.folder)

    def _create(self, layer_id: str, size: int) -> None:
        draft = UNFINISHED + layer_id
        with self.opened() as fd:
            if self.exists(layer_id):
                group = btrfs.subvolume_id(self.folder / layer_id)
                btrfs.limit_group(fd, group, size)
                return
            self.discard(fd, draft)
            btrfs.create_subvolume(fd, draft, size)
            try:
                (self.folder / draft / "upper").mkdir(mode=0o755)
                (self.folder / draft / "work").mkdir(mode=0o700)
                self.name(fd, draft, layer_id)
            except OSError:
                self.discard(fd, draft)
                raise

    def _duplicate(self, layer_id: str, copy_id: str, size: int) -> None:
        if self.exists(copy_id):
            return
        draft = UNFINISHED + copy_id
        with self.opened() as fd:
            self.discard(fd, draft)
            btrfs.snapshot(fd, draft, self.folder / layer_id, read_only=False)
            # Given separately: the kernel overrides a limit in the call with that of the source.
            btrfs.limit_group(fd, btrfs.subvolume_id(self.folder / draft), size)
            self.name(fd, draft, copy_id)

    def _resize(self, layer_id: str, size: int) -> None:
        group = btrfs.subvolume_id(self.folder / layer_id)
        before = self._sysfs().limit(group)
        with self.opened() as fd:
            btrfs.limit_group(fd, group, size)  # first: from here on it grows no further
            if size >= before:
                return
            btrfs.sync(fd)
            if (used := self._sysfs().used(group)) > size:
                btrfs.limit_group(fd, group, before)
                raise does_not_fit(layer_id, used, size)

    def _delete(self, layer_id: str) -> None:
        with self.opened() as fd:
            self.discard(fd, layer_id)

    def name(self, fd: int, draft: str, layer_id: str) -> None:
        """Call a subvolume that is complete by its name, on the disk too: 4 to 7 ms.

        By itself the kernel writes a name 30 s later: records would tell of layers that a power
        cut, or a store that shuts itself on a full disk, has taken away.
        """
        (self.folder / draft).rename(self.folder / layer_id)
        os.fsync(fd)

    def discard(self, fd: int, name: str) -> None:
        """Delete the subvolume *name* if it is there."""
        if self.exists(name):
            btrfs.delete_subvolume(fd, name)

    def used(self, path: Path) -> int:
        """Return the bytes the subvolume at *path* refers to."""
        return self._sysfs().used(btrfs.subvolume_id(path))

    @contextmanager
    def spare(self, layer_id: str) -> Iterator[None]:
        """Let a full layer have a little more than its limit meanwhile; the next `create` sets it."""
        group = btrfs.subvolume_id(self.folder / layer_id)
        limit = self._sysfs().limit(group)
        if self._sysfs().used(group) + SPARE < limit:
            yield
            return
        with self.opened() as fd:
            btrfs.limit_group(fd, group, limit + SPARE)
            try:
                yield
            finally:
                btrfs.limit_group(fd, group, limit)

    def _sweep_drafts(self, fd: int) -> None:
        """Remove what an engine that was killed had not finished."""
        for draft in self.folder.glob(f"{UNFINISHED}*"):
            self.discard(fd, draft.name)

    def _sweep_groups(self, fd: int) -> None:
        """Remove groups of subvolumes that are gone; the kernel does so itself since 6.11."""
        folders = (self.folder, self.folder / SNAPSHOTS, self.folder / TREES)
        kept = [path for folder in folders for path in folder.glob("*")]
        alive = {btrfs.subvolume_id(path) for path in kept if btrfs.is_subvolume(path)}
        for group in self._sysfs().subvolume_groups():
            if group >= btrfs.FIRST_FREE_ID and group not in alive:
                # Refused while the subvolume is still being cleaned up: the next start does it.
                with suppress(OSError):
                    btrfs.remove_group(fd, group)

    def _sysfs(self) -> btrfs.Sysfs:
        if self._shown is None:
            entry = mount_at(self.folder, read_mounts())
            if entry is None:  # while it is opened again: another store's numbers would be kept
                raise self._unmounted()
            self._shown = btrfs.Sysfs.of_device(entry.source)
        return self._shown

    def opened(self) -> AbstractContextManager[int]:
        """Open the folder of all layers."""
        return btrfs.opened(self.folder)
