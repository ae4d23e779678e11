"""Copies of trees that share their files' blocks with the original (FICLONE: btrfs, xfs with reflinks).

The target may lie below what a sandbox changes meanwhile: every entry is made anew beneath a
descriptor, by no path and through no link, so that nothing outside of the target can be met.
"""

import fcntl
import hashlib
import os
import stat

from atoll.errors import FilesystemError
from atoll.host import linux

_FICLONE = 0x4004_9409
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

MAX_DEPTH = 200
"""Folders in each other: two descriptors are open for each."""


def summary(source: int) -> str:
    """Return a digest of what the tree *source* is but for the contents of its files. Blocking.

    Raises:
        FilesystemError: it is nested too deep, or has what no backup has.
        OSError: it cannot be read.
    """
    return _Walk(source, None).run()


def share(source: int, target: int) -> str:
    """Fill the empty folder *target* with what is in *source*; return the `summary`. Blocking.

    Files have the same blocks, modes, owners and times, and the same links to each other. Nothing
    is said of *target* itself, nor is it on the disk.

    Raises:
        FilesystemError: as `summary`.
        OSError: something cannot be read or made.
    """
    return _Walk(source, target).run()


class _Walk:
    def __init__(self, source: int, target: int | None) -> None:
        self._source, self._target = source, target
        self._top = -1 if target is None else target
        self._first: dict[int, bytes] = {}  # of a file with several names
        self._digest = hashlib.sha256()

    def run(self) -> str:
        self._folder(self._source, self._target, b"", 0)
        return self._digest.hexdigest()

    def _folder(self, source: int, target: int | None, path: bytes, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise FilesystemError("folders are nested too deep to be shared")
        for name in sorted(map(os.fsencode, os.listdir(source))):
            self._entry(source, target, name, path + b"/" + name, depth)

    def _entry(self, source: int, target: int | None, name: bytes, path: bytes, depth: int) -> None:
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        told = [found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, found.st_nlink]
        if stat.S_ISDIR(found.st_mode):
            told.pop()  # of a folder it says nothing on btrfs
            self._tell(path, *told)
            self._below(source, target, name, path, depth, found)
        elif stat.S_ISLNK(found.st_mode):
            link = os.readlink(name, dir_fd=source)
            self._tell(path, *told, link)
            if target is not None:
                os.symlink(link, name, dir_fd=target)
                _describe(name, found, target)
        elif stat.S_ISREG(found.st_mode):
            first = self._first.get(found.st_ino)
            self._tell(path, *told, found.st_size, first)
            if found.st_nlink > 1:
                self._first.setdefault(found.st_ino, path)
            if target is not None:
                self._file(source, target, name, found, first)
        else:
            raise FilesystemError("there is something else than files, folders and links")

    def _tell(self, *facts: object) -> None:
        self._digest.update(repr(facts).encode())

    def _below(
        self,
        source: int,
        target: int | None,
        name: bytes,
        path: bytes,
        depth: int,
        found: os.stat_result,
    ) -> None:
        inner = os.open(name, _DIRECTORY, dir_fd=source)
        made = None
        try:
            if target is not None:
                os.mkdir(name, 0o700, dir_fd=target)
                made = os.open(name, _DIRECTORY, dir_fd=target)
            self._folder(inner, made, path, depth + 1)
            if made is not None:
                _finish(made, found)
        finally:
            os.close(inner)
            if made is not None:
                os.close(made)

    def _file(
        self, source: int, target: int, name: bytes, found: os.stat_result, first: bytes | None
    ) -> None:
        if first is not None:
            self._link(first, target, name)
            return
        made = os.open(name, _NEW, 0o600, dir_fd=target)
        try:
            if found.st_size:
                _clone(source, name, made)
            _finish(made, found)
        finally:
            os.close(made)

    def _link(self, first: bytes, target: int, name: bytes) -> None:
        """By a descriptor: a folder on the way may have become a link."""
        fd = linux.open_below(self._top, os.fsdecode(first.lstrip(b"/")), os.O_PATH | os.O_NOFOLLOW)
        try:
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=target, follow_symlinks=True)
        finally:
            os.close(fd)


def _clone(source: int, name: bytes, made: int) -> None:
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=source)
    try:
        fcntl.ioctl(made, _FICLONE, file)
    finally:
        os.close(file)


def _finish(made: int, found: os.stat_result) -> None:
    os.fchown(made, found.st_uid, found.st_gid)
    os.fchmod(made, stat.S_IMODE(found.st_mode))
    os.utime(made, ns=(found.st_mtime_ns, found.st_mtime_ns))


def _describe(name: bytes, found: os.stat_result, target: int) -> None:
    os.chown(name, found.st_uid, found.st_gid, dir_fd=target, follow_symlinks=False)
    times = (found.st_mtime_ns, found.st_mtime_ns)
    os.utime(name, ns=times, dir_fd=target, follow_symlinks=False)
