"""What a power cut does not take away: contents on the disk before their name, the name before it is told."""

import os
from pathlib import Path

from atoll.host import linux


def sync(path: Path) -> None:
    """Write a file, or the names in a directory, to the disk. Blocking.

    Raises:
        OSError: it cannot be opened or written.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_all(folder: Path) -> None:
    """Write what is cached of the file system at *folder*, files that nobody may open too. Blocking.

    One call for any number of files; it waits for what others have written there as well.

    Raises:
        OSError: it cannot be opened or written.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        linux.syncfs(fd)
    finally:
        os.close(fd)


def name(draft: Path, target: Path) -> None:
    """Call by its name what is complete, both on the disk when this returns. Blocking.

    Of a folder, its names only: what lies deeper takes a `sync_all` first.

    Raises:
        OSError: it cannot be written or renamed.
    """
    sync(draft)
    draft.rename(target)
    sync(target.parent)
