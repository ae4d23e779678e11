"""Unmounts the roots and the layer store of an engine that will not come back.

Loop devices end with the last mount that uses them.
"""

from contextlib import suppress
from pathlib import Path

from atoll.host import linux
from atoll.host.mounts import mounts_below, read_mounts
from atoll.host.threads import run_to_end
from atoll.storage.label import store_key


async def remove(state_dir: Path, roots: Path) -> None:
    """Unmount the layers in *state_dir*, and the roots of its sandboxes below *roots*."""
    await run_to_end(_remove, state_dir, roots / store_key(state_dir))


def _remove(state_dir: Path, own_roots: Path) -> None:
    for folder in (own_roots, state_dir / "layers"):
        _unmount(folder)
    with suppress(FileNotFoundError):
        for path in own_roots.iterdir():
            _remove_empty(path / "rootfs", path / ".layers", path)
    _remove_empty(own_roots, state_dir / "layers")


def _unmount(folder: Path) -> None:
    mounts = read_mounts(str(folder))
    itself = [m for m in mounts if m.target == folder]
    below = mounts_below(folder, mounts)
    # A mount in another one goes with it: on the path to it a link may lie by now.
    outer = [m for m in below if not any(o.target in m.target.parents for o in below)]
    for mount in [*outer, *itself]:
        linux.umount(mount.target, linux.MNT_DETACH)


def _remove_empty(*folders: Path) -> None:
    for folder in folders:
        with suppress(OSError):  # not there, or somebody's files in it
            folder.rmdir()
