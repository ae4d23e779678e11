"""Files of a volume, used from outside of any sandbox. Blocking.

Sandboxes may write to the volume meanwhile, and what they left is hostile: no link is followed, no
mount crossed, and nothing but a regular file is ever opened for its content. A file is written
beside the tree that sandboxes see, and put in its place by one rename when it is complete.
"""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from atoll.errors import (
    IsDirectoryError,
    SandboxError,
    SecurityError,
    ValidationFailedError,
    from_os_error,
)
from atoll.host import linux
from atoll.storage.refusals import shut

MAX_ENTRIES = 1_000
"""Entries of one page of a folder."""

ASIDE = "atoll-"
"""Begins the names of what is not yet, or not any more, a part of the volume."""

_FOLDER = os.O_PATH | os.O_DIRECTORY
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


class Entry(NamedTuple):
    """One name in a folder, and what it is. `target`: where a link leads."""

    name: str
    type: str
    stat: os.stat_result
    target: str | None


def clean(path: str) -> str:
    """Return *path* relative to the volume; "" is the volume itself.

    Raises:
        ValidationFailedError: it has a ``..`` or a NUL byte.
    """
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts or "\0" in path:
        raise ValidationFailedError(
            "a path in a volume has no '..' and no NUL byte", context={"field": "path"}
        )
    return "/".join(parts)


def opened(layer: Path, path: str) -> tuple[BinaryIO, os.stat_result]:
    """Open a file to read it.

    Args:
        layer: folder of the volume's layer.
        path: as `clean` returns it.

    Raises:
        SecurityError: a part of the path is a link, or it is no regular file.
        IsDirectoryError: it is a folder.
        FileNotFoundError: it is not there.
    """
    with typed(path), top_of(layer) as top:
        found = linux.open_below(top, path or ".", os.O_PATH | os.O_NOFOLLOW)
        try:
            _check_regular(os.fstat(found), path)
            # By its descriptor: the name may be a FIFO or a link by now.
            file = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(found)
        return os.fdopen(file, "rb", buffering=0), os.fstat(file)


def _check_regular(found: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsDirectoryError(f"{path or '/'} is a directory", context={"path": path})
    if not stat.S_ISREG(found.st_mode):
        raise SecurityError(f"{path} is no regular file", context={"path": path})


def entries(layer: Path, path: str, after: str, limit: int) -> tuple[list[Entry], str | None]:
    """Return a page of a folder in order of name, and the name it ended with if there are more.

    Args:
        layer: folder of the volume's layer.
        path: as `clean` returns it.
        after: the name that the page before ended with.
        limit: most entries; `MAX_ENTRIES` at most.

    Raises:
        SecurityError: a part of the path is a link.
        NotDirectoryError: it is no folder.
        FileNotFoundError: it is not there.
    """
    with typed(path), top_of(layer) as top:
        folder = linux.open_below(top, path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(folder) as found_names:
                names = sorted(each.name for each in found_names if each.name > after)
            limit = max(1, min(limit, MAX_ENTRIES))
            found = [entry for name in names[:limit] if (entry := _entry(folder, name))]
            return found, names[limit - 1] if len(names) > limit else None
        finally:
            os.close(folder)


def _entry(folder: int, name: str) -> Entry | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        link = stat.S_ISLNK(found.st_mode)
        target = os.readlink(name, dir_fd=folder) if link else None
    except OSError:  # it went, or became something else, meanwhile
        return None
    return Entry(name, _KINDS.get(stat.S_IFMT(found.st_mode), "other"), found, target)


class Draft:
    """A file that is being written; nobody sees it before `publish`.

    Args:
        layer: folder of the volume's layer.
        path: as `clean` returns it; not the volume itself (`IsDirectoryError`).

    Raises:
        NoSpaceError: the host's disk is full.
        ContainerUnavailableError: it was, and the store has failed.
    """

    def __init__(self, layer: Path, path: str) -> None:
        if not path:
            raise IsDirectoryError("this is the volume itself", context={"path": "/"})
        self._layer = layer
        self._path = path
        self._draft = aside(layer)
        self._hash = hashlib.sha256()
        with typed(path):
            self._file = self._draft.open("xb")
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append *data*.

        Raises:
            DiskQuotaExceededError: the volume is full.
            NoSpaceError: the host's disk is.
        """
        with typed(self._path):
            self._file.write(data)
        self._hash.update(data)
        self.size += len(data)

    def publish(self) -> str:
        """Put the file in its place, complete and durable; return its SHA-256.

        Folders on the way are made. Mode and owner of a file that is replaced are kept; what is
        written anew belongs to root and has mode 644.

        Raises:
            SecurityError: a folder on the way is a link.
            IsDirectoryError: a folder has this name.
        """
        folder, _, name = self._path.rpartition("/")
        with typed(self._path), top_of(self._layer) as top, folders_made(top, folder) as parent:
            self._adopt(parent, name)
            self._file.flush()
            os.fsync(self._file.fileno())
            os.rename(self._draft, name, dst_dir_fd=parent)
            sync(parent)
        return self._hash.hexdigest()

    def _adopt(self, parent: int, name: str) -> None:
        mode, owner = 0o644, (os.geteuid(), os.getegid())
        with suppress(FileNotFoundError):
            before = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISREG(before.st_mode):
                mode, owner = stat.S_IMODE(before.st_mode), (before.st_uid, before.st_gid)
        os.fchown(self._file.fileno(), *owner)
        os.fchmod(self._file.fileno(), mode & 0o1777)

    def close(self) -> bool:
        """Remove what was not published; False: it has to be tried again, the store has failed."""
        with suppress(OSError):
            self._file.close()
        try:
            self._draft.unlink(missing_ok=True)
        except OSError:
            return False
        return True


def aside(layer: Path) -> Path:
    """Return a fresh path beside the tree that sandboxes see; `volume_changes.sweep` finds it."""
    return layer / "work" / f"{ASIDE}{secrets.token_hex(8)}"


@contextmanager
def top_of(layer: Path) -> Iterator[int]:
    """Hold the top of the tree that sandboxes see."""
    top = os.open(layer / "upper", _FOLDER | os.O_CLOEXEC)
    try:
        yield top
    finally:
        os.close(top)


@contextmanager
def folders_made(top: int, folder: str) -> Iterator[int]:
    """Open *folder*, made where it is missing, one component at a time."""
    current = os.dup(top)
    try:
        for part in folder.split("/") if folder else ():
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=current)
            child = linux.open_below(current, part, _FOLDER)
            os.close(current)
            current = child
        yield current
    finally:
        os.close(current)


def sync(folder: int) -> None:
    """Make names in *folder* durable."""
    readable = os.open(f"/proc/self/fd/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(readable)
    finally:
        os.close(readable)


@contextmanager
def typed(path: str) -> Iterator[None]:
    """Raise what the kernel refuses as our own errors; links on the way as `SecurityError`."""
    try:
        yield
    except SandboxError:
        raise
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EXDEV}:
            raise SecurityError(
                f"a part of {path} is a link",
                context={"path": path},
                suggestion="links in volumes are followed inside sandboxes only",
            ) from error
        if error.errno == errno.EROFS:
            raise shut() from error
        raise from_os_error(error, path or "/") from error
