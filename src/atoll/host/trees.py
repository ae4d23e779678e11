"""Removes folders whose content is somebody else's: of any depth, with any names and modes.

`shutil.rmtree` recurses, and gives up at a thousand folders in each other. Here what a folder holds is
moved up and removed there, so that nothing grows with the depth: neither the stack nor the number of
open descriptors nor the length of a path.
"""

import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_AT_ONCE = 256  # names; each look at a folder costs as much as a thousand of them

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(path: Path) -> None:
    """Remove *path* and all in it; a link goes, and what it leads to stays. Idempotent. Blocking.

    Nobody may change it meanwhile. What has been moved up when this is killed or fails lies in
    *path*, under names of its own, and goes the next time.

    Raises:
        OSError: something cannot be removed, as a mount.
    """
    with suppress(FileNotFoundError):
        parent = os.open(path.parent, _DIRECTORY & ~os.O_NOFOLLOW)
        try:
            remove_at(parent, path.name)
        finally:
            os.close(parent)


def remove_at(parent: int, name: str) -> None:
    """Remove the entry *name* of the directory *parent*; see `remove`.

    Raises:
        FileNotFoundError: there is none.
        OSError: something cannot be removed.
    """
    try:
        os.unlink(name, dir_fd=parent)
        return
    except IsADirectoryError:
        pass
    moved = (f".{secrets.token_hex(8)}-{number}" for number in itertools.count())
    with _opened(parent, name) as top:
        while folders := _some_folders(top):
            for folder in folders:
                with _opened(top, folder) as current:
                    _empty(current, top, moved)
                os.rmdir(folder, dir_fd=top)
    os.rmdir(name, dir_fd=parent)


def _some_folders(top: int) -> list[str]:
    """Remove files of *top* until some folders of it are found; return those, if there are any."""
    found: list[str] = []
    with os.scandir(top) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=top)
                continue
            found.append(entry.name)
            if len(found) == _AT_ONCE:
                break
    return found


def _empty(folder: int, top: int, moved: Iterator[str]) -> None:
    """Remove the files of *folder*, and move its folders to *top*."""
    while folders := _some_folders(folder):
        for below in folders:
            _allow(folder, below)
            os.rename(below, next(moved), src_dir_fd=folder, dst_dir_fd=top)


@contextmanager
def _opened(parent: int, name: str) -> Iterator[int]:
    _allow(parent, name)
    fd = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)


def _allow(parent: int, name: str) -> None:
    """Let the owner of a folder read and change it; root does so whatever its mode."""
    if os.geteuid():
        os.chmod(name, 0o700, dir_fd=parent)
