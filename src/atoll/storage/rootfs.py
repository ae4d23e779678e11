"""The root of a running sandbox: an overlay of the image's layers and its own, ids mapped.

Roots appear in ``/run/atoll/<key of the state directory>/<host_ref>/rootfs``, not below the state
directory: the container's first process walks to its root with the sandbox's ids, which closed
directories (state, a home) would stop. Only root of that sandbox may pass its own directory there.

Every layer is cloned, idmapped and attached in a staging file system beside the root for the
moment of the mount; overlay keeps private clones, so it is gone again before the root is used.
Whatever a crash leaves lies below the sandbox's directory and is found in the mount table. Nothing of a mounted layer is ever
changed from outside.
"""

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from atoll.errors import (
    NotSupportedByRuntimeError,
    ResourceBusyError,
    SandboxError,
)
from atoll.host import linux
from atoll.host.mounts import mount_at, mounts_below, read_mounts, stop_propagation
from atoll.host.threads import run_to_end
from atoll.settings import StorageSettings
from atoll.storage import idmap, refusals
from atoll.storage.attach import attach
from atoll.storage.label import RootLabel, parse_label, store_key
from atoll.storage.layers import LayerStore

BASE = Path("/run/atoll/roots")

_STAGING = ".layers"
_OPTIONS = "index=off,metacopy=off,redirect_dir=on"
"""Renaming an image's directory works (redirect_dir). Neither of the others may be on: index
refuses a forked upper layer, metacopy trusts attributes in it for another file's data."""

_BUSY_WAIT = 0.5
"""Seconds a root may stay busy after its last process was killed before it is detached lazily."""

_log = structlog.get_logger(__name__)


class RootfsStore:
    """Mounts and unmounts roots. All calls may be repeated, also after a crash.

    Args:
        settings: `state_dir`.
        layers: where the writable layers are; open.
        base: where roots of all engines of the host appear; passable for all, listed by root only.
    """

    def __init__(self, settings: StorageSettings, layers: LayerStore, *, base: Path = BASE) -> None:
        self._base = base
        self._store = store_key(settings.state_dir)
        self._run_dir = base / self._store
        self._layers = layers
        self._mappings = idmap.Mappings()
        self._mounted: dict[str, RootLabel] = {}

    async def open(self) -> None:
        """Prepare the directory that roots appear in, and find those that are there."""
        for folder in (self._base, self._run_dir):
            folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            folder.chmod(0o711)
        await run_to_end(stop_propagation, self._run_dir)
        self._mounted = await self.labels()

    async def close(self) -> None:
        """Undo `open` where no root is mounted any more."""
        self._mappings.close()
        with suppress(OSError):
            while mount_at(self._run_dir, read_mounts()):
                linux.umount(self._run_dir)
            self._run_dir.rmdir()

    async def mount(
        self, host_ref: str, lowers: Sequence[Path], layer_id: str, id_base: int, id_count: int
    ) -> Path:
        """Mount the root of *host_ref* and return it; an equal one that is there is kept.

        Args:
            host_ref: names the directory of the root.
            lowers: the image's layers, the uppermost first; ids on disk are the image's own.
            layer_id: the writable layer.
            id_base: host id of root inside.
            id_count: how many ids are mapped from there.

        Raises:
            ResourceBusyError: the layer is mounted for another sandbox, or another root here.
            NotSupportedByRuntimeError: kernel or file system has no idmapped overlay layers.
        """
        folder = await self._layers.attach(layer_id)
        root = self._run_dir / host_ref / "rootfs"
        label = RootLabel(self._store, layer_id, id_base, id_count)
        if self._mounted.get(host_ref) == label:
            return root
        if layer_id in {m.layer_id for m in self._mounted.values()} or host_ref in self._mounted:
            raise ResourceBusyError(
                f"layer {layer_id} is mounted already", context={"host_ref": host_ref}
            )
        # Overlay refuses a layer that is listed twice; the upper occurrence hides the lower one.
        distinct = list(dict.fromkeys(lowers))
        self._mounted[host_ref] = label
        try:
            await run_to_end(self._mount, root, distinct, folder, label)
        except BaseException:
            await self.unmount(host_ref)
            raise
        return root

    async def attach(self, host_ref: str, target: str, layer_id: str, *, read_only: bool) -> None:
        """Mount the files of another layer inside the root of *host_ref*, which nothing uses yet.

        Args:
            host_ref: of a mounted root.
            target: an absolute path inside; what is missing of it is made.
            layer_id: whose files.
            read_only: as seen from inside.

        Raises:
            FileNotFoundError: there is no such layer.
            SecurityError: a part of *target* is a link.
            InvalidMountConfigError: a part of it is there and no directory.
        """
        label = self._mounted[host_ref]
        folder = await self._layers.attach(layer_id)
        root = self._run_dir / host_ref / "rootfs"
        await run_to_end(self._attach, root, target, folder / "upper", label, read_only)

    def _attach(
        self, root: Path, target: str, folder: Path, label: RootLabel, read_only: bool
    ) -> None:
        userns = self._mappings.get(label.id_base, label.id_count)
        try:
            attach(root, target, folder, userns=userns, owner=label.id_base, read_only=read_only)
        except SandboxError:
            raise
        except OSError as error:
            raise _typed(error, root) from error

    async def unmount(self, host_ref: str) -> None:
        """Unmount the root with all that is in it, and whatever else a crash left beside it."""
        await run_to_end(self._unmount, self._run_dir / host_ref)
        self._mounted.pop(host_ref, None)

    async def list(self) -> list[str]:
        """Return the host_ref of every root, also of those a crash left half-made."""
        entries = mounts_below(self._run_dir, read_mounts(str(self._run_dir)))
        return sorted({self._host_ref(m.target) for m in entries})

    async def labels(self) -> dict[str, RootLabel]:
        """Return what each mounted root was made from, by host_ref."""
        return await run_to_end(self._labels)

    def _mount(self, root: Path, lowers: Sequence[Path], layer: Path, label: RootLabel) -> None:
        self._unmount(root.parent)
        try:
            userns = self._mappings.get(label.id_base, label.id_count)
            root.parent.mkdir(mode=0o710)
            os.chown(root.parent, 0, label.id_base)
            root.mkdir(mode=0o700)
            # Overlay makes a directory; where it cannot, it mounts read-only and says nothing.
            with self._layers.spare(label.layer_id):
                _mount_overlay(root, lowers, layer, userns, label)
        except OSError as error:
            raise _typed(error, root) from error

    def _unmount(self, folder: Path) -> None:
        staging = folder / _STAGING
        with suppress(FileNotFoundError):
            if staging.is_mount():
                linux.umount(staging, linux.MNT_DETACH)
            staging.rmdir()
        # Removing a mount point also unmounts it in namespaces that copied it earlier.
        with suppress(FileNotFoundError):
            _umount_or_detach(folder / "rootfs")
            (folder / "rootfs").rmdir()
        with suppress(FileNotFoundError):
            folder.rmdir()

    def _labels(self) -> dict[str, RootLabel]:
        return {
            self._host_ref(m.target): label
            for m in mounts_below(self._run_dir, read_mounts(str(self._run_dir)))
            if (label := parse_label(m.source))
        }

    def _host_ref(self, target: Path) -> str:
        return target.relative_to(self._run_dir).parts[0]


def _mount_overlay(
    root: Path, lowers: Sequence[Path], layer: Path, userns: int, label: RootLabel
) -> None:
    staging = root.parent / _STAGING
    staging.mkdir(mode=0o700)
    linux.mount("atoll", staging, "tmpfs", data="mode=700")
    names = [str(number) for number in range(len(lowers))]
    for name, source in zip([*names, "own"], [*lowers, layer], strict=True):
        _attach_mapped(source, staging / name, userns)
    _overlay(root, staging, names, str(label))
    # All at once: each ordinary unmount waits for every processor (5 ms on a busy machine).
    linux.umount(staging, linux.MNT_DETACH)
    staging.rmdir()


def _attach_mapped(source: Path, target: Path, userns: int) -> None:
    target.mkdir()
    clone = linux.open_tree(source)
    try:
        linux.mount_setattr(clone, attr_set=linux.MOUNT_ATTR_IDMAP, userns_fd=userns)
        linux.move_mount(clone, target)
    finally:
        os.close(clone)


def _overlay(root: Path, staging: Path, lowers: Sequence[str], source: str) -> None:
    """Mount by a descriptor of *staging*: full paths of 127 layers would not fit into a page."""
    fd = os.open(staging, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        here = f"/proc/self/fd/{fd}"
        lower = ":".join(f"{here}/{name}" for name in lowers)
        data = f"lowerdir={lower},upperdir={here}/own/upper,workdir={here}/own/work,{_OPTIONS}"
        linux.mount(source, root, "overlay", linux.MS_NOSUID | linux.MS_NODEV, data)
    finally:
        os.close(fd)


def _umount_or_detach(target: Path) -> None:
    if _retry_while_busy(lambda: _umount_tree(target)):
        return
    _log.warning("a root is still in use and was detached", path=str(target))
    linux.umount(target, linux.MNT_DETACH)


def _umount_tree(target: Path) -> None:
    """Unmount a root, as one with what is mounted in it: on a path in there a link may lie."""
    try:
        linux.umount(target)
    except OSError as error:
        if error.errno != errno.EBUSY or not mounts_below(target, read_mounts(str(target))):
            raise
        linux.umount(target, linux.MNT_DETACH)


def _retry_while_busy(call: Callable[[], None]) -> bool:
    deadline = time.monotonic() + _BUSY_WAIT
    while True:
        try:
            call()
            return True
        except OSError as error:
            if error.errno == errno.EINVAL:
                return True  # not mounted, or not any more
            if error.errno != errno.EBUSY:
                raise
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def _typed(error: OSError, root: Path) -> Exception:
    if error.errno in {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}:
        return NotSupportedByRuntimeError(
            "this host cannot map the ids of a sandbox's files",
            context={"path": str(error.filename or root), "errno": errno.errorcode[error.errno]},
            suggestion="Linux 5.19 with images and state on ext4, xfs or btrfs is needed",
        )
    return refusals.typed(error, root)
