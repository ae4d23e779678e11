"""Making, moving and removing what is in a volume, from outside of any sandbox. Blocking.

A change is one rename or one `mkdir` of the kernel, so a crash leaves the old or the new. What is
removed is moved out of the tree first and taken apart there; an engine that dies meanwhile leaves
it to `sweep`. As in `volume_files`, no link is followed and no mount crossed.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from atoll.errors import (
    FileExistsError,
    FilesystemError,
    ValidationFailedError,
)
from atoll.host import linux
from atoll.storage.volume_files import ASIDE, aside, folders_made, sync, top_of, typed

PATIENCE = 120.0
"""Seconds for taking one tree apart: a million files take half a minute."""


def make_folder(layer: Path, path: str, *, parents: bool) -> None:
    """Make a folder, durable when this returns.

    Args:
        layer: folder of the volume's layer.
        path: as `volume_files.clean` returns it.
        parents: make those on the way too, and be content with one that is there.

    Raises:
        FileExistsError: the name is taken.
        FileNotFoundError: a folder on the way is missing.
        SecurityError: a folder on the way is a link.
    """
    with typed(path), top_of(layer) as top:
        if parents:
            with folders_made(top, path) as made:
                sync(made)
            return
        folder, name = _split(path)
        with _opened(top, folder) as parent:
            os.mkdir(name, 0o755, dir_fd=parent)
            sync(parent)


def move(layer: Path, path: str, target: str, *, overwrite: bool) -> None:
    """Give a file or folder another path, in one step.

    Args:
        layer: folder of the volume's layer.
        path: what is moved; a link itself, not where it leads.
        target: its new path; the folder it lies in is there.
        overwrite: replace a file, or an empty folder by a folder.

    Raises:
        FileNotFoundError: there is nothing, or the folder of *target* is missing.
        FileExistsError: *target* is taken.
        ValidationFailedError: a folder would come into itself.
        SecurityError: a folder on the way is a link.
    """
    (source, old), (folder, new) = _split(path), _split(target)
    with (
        typed(path), top_of(layer) as top,
        _opened(top, source) as here, _opened(top, folder) as there,
    ):  # fmt: skip
        try:
            linux.rename(here, old, there, new, replace=overwrite)
        except OSError as error:
            raise _not_moved(error, path, target) or error from error
        for changed in {here, there}:
            sync(changed)


def _not_moved(error: OSError, path: str, target: str) -> Exception | None:
    if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
        return FileExistsError(
            f"there is something at {target} already",
            context={"path": target},
            suggestion="remove it first, or overwrite a file",
        )
    if error.errno == errno.EINVAL:
        return ValidationFailedError(
            f"{path} cannot be moved into itself", context={"field": "target"}
        )
    return None


def remove(layer: Path, path: str, *, recursive: bool) -> Path | None:
    """Take a file or folder out of the volume, in one step.

    Args:
        layer: folder of the volume's layer.
        path: a link is removed itself.
        recursive: a folder too, with all that is in it; without, only an empty one.

    Returns:
        What is left to be taken apart by `dismantle`, outside of the volume.

    Raises:
        FileNotFoundError: there is nothing.
        FilesystemError: the folder is not empty.
        SecurityError: a folder on the way is a link.
    """
    folder, name = _split(path)
    with typed(path), top_of(layer) as top, _opened(top, folder) as parent:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=parent)
            gone = None
        elif recursive:
            gone = aside(layer)
            _passable(parent, name)
            os.rename(name, gone, src_dir_fd=parent)
        else:
            _remove_empty(parent, name, path)
            gone = None
        sync(parent)
        return gone


def _remove_empty(parent: int, name: str, path: str) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        raise FilesystemError(
            f"folder {path} is not empty",
            context={"path": path, "errno": "ENOTEMPTY"},
            suggestion="remove it with recursive=True",
        ) from error


def dismantle(tree: Path) -> bool:
    """Delete a tree that `remove` returned, of any depth, in flat memory and few descriptors.

    Folders in folders are moved up to the top one, so the way to any of them is two names long.

    Returns:
        Whether it is gone. A process that still is in one of its folders can make files there for
        as long as it runs; then what is left is for `sweep`.
    """
    deadline = time.monotonic() + PATIENCE
    top = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while time.monotonic() < deadline:
            folders = _emptied(top)
            for name in folders:
                _lifted(top, name)
            if not folders:
                with suppress(OSError):  # one more was made just now
                    tree.rmdir()
                    return True
    finally:
        os.close(top)
    return False


def _lifted(top: int, name: str) -> None:
    """Empty the folder *name*, move what folders are in it up to *top*, and delete it."""
    _passable(top, name)
    folder = linux.open_below(top, name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for deeper in _emptied(folder):
            _passable(folder, deeper)
            os.rename(deeper, secrets.token_hex(8), src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    with suppress(OSError):  # likewise: the next round
        os.rmdir(name, dir_fd=top)


def _passable(folder: int, name: str) -> None:
    """Let an engine that is not root move and open a folder that its sandboxes closed."""
    if os.geteuid():
        with _opened(folder, name) as found:
            Path(f"/proc/self/fd/{found}").chmod(0o700)


def _emptied(folder: int) -> list[str]:
    """Delete the files in *folder*; return the folders in it."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                with suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(entry.name, dir_fd=folder)
    return folders


def sweep(layer: Path) -> None:
    """Remove what an engine that was killed, or a removal that was disturbed, had not finished."""
    for left in (layer / "work").glob(f"{ASIDE}*"):
        if left.is_dir() and not left.is_symlink():
            dismantle(left)
        else:
            left.unlink()


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    if not name:
        raise ValidationFailedError("this is the volume itself", context={"field": "path"})
    return folder, name


@contextmanager
def _opened(top: int, folder: str) -> Iterator[int]:
    fd = linux.open_below(top, folder or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)
