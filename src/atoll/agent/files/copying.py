"""Copying files and trees.

Everything is copied aside and put in place by one rename, so that a failed or cancelled copy
leaves nothing. Kept are content with its holes, permission bits, times, links as links, hard
links among the copied files, and extended attributes of users. A copy belongs to who makes it and
has no set-id bits, unless it is the second half of a move. A single file copied over an existing
one is a write: that file keeps its mode and owner.

A copy is durable when the call returns: one file by its own sync, a tree by one call for its
whole file system, because thousands of single syncs would take minutes.
"""

import errno
import os
import stat
from contextlib import suppress
from typing import Any, Final, NamedTuple

from atoll import errors
from atoll.agent import kernel
from atoll.agent.files import deleting, pathnames, spools, walking
from atoll.agent.files.pathnames import Place, to_text
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Stream

_PERMISSIONS: Final = 0o1777
_PIECE: Final = 64 << 20
"""Bytes copied between two looks at the caller: some hundredths of a second."""


def copy_file(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Copy ``source`` to ``target``, its new name; directories only with ``recursive``.

    A link at the end of either path is followed; links inside a tree are copied as links.
    """
    source, target = fields.path("source"), fields.path("target")
    with pathnames.target(source) as origin:
        found = origin.require()
        if stat.S_ISDIR(found.st_mode) and not fields.flag("recursive"):
            raise errors.IsDirectoryError(
                f"Is a directory: {to_text(source)}",
                context={"path": to_text(source)},
                suggestion="use recursive=True to copy a directory and all in it",
            )
        with pathnames.target(target) as place:
            copy = Copy(stream, keep_owner=False)
            if stat.S_ISREG(found.st_mode):
                copy.over(origin, place)
            else:
                copy.aside(origin, place)
    return {"success": True}


class _Level(NamedTuple):
    """A directory being copied."""

    items: walking.Items
    source: int
    target: int
    relative: bytes


class Copy:
    """One copy of an entry to another place."""

    def __init__(self, stream: Stream, *, keep_owner: bool) -> None:
        self._stream = stream
        self._keep_owner = keep_owner
        self._hard_links: dict[tuple[int, int], bytes] = {}

    def over(self, origin: Place, place: Place) -> None:
        """Write the content of the regular file at *origin* to *place*."""
        existing = place.stat()
        if existing is not None:
            spools.check_writable(place, existing)
        source = origin.open(os.O_RDONLY)
        try:
            found = os.fstat(source)
            if existing is not None and os.path.samestat(found, existing):
                return
            mode = None if existing else found.st_mode & 0o777
            with spools.Spool(place, existing, mode) as spool:
                self._content(source, spool.fd)
                spool.size = os.fstat(spool.fd).st_size
                spools.copy_attributes(source, spool.fd)
                os.utime(spool.fd, ns=(found.st_atime_ns, found.st_mtime_ns))
                spool.replace()
        finally:
            os.close(source)

    def aside(self, origin: Place, place: Place) -> None:
        """Copy what is at *origin*, a link as itself, and rename the copy to *place*.

        Raises:
            ValidationFailedError: *place* is inside *origin*.
            OSError: nothing of the copy is left.
        """
        _refuse_inside(origin, place)
        name = spools.temporary_name()
        try:
            self._entry(origin.directory, origin.name, place.directory, name)
            os.rename(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
        except BaseException:
            with suppress(OSError):
                remove(place.directory, name)
            raise
        place.sync()

    def _entry(self, source: int, name: bytes, target: int, new: bytes) -> None:
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            self._tree(source, name, target, new)
        elif stat.S_ISREG(found.st_mode):
            self._file(source, name, target, new, sync=True)
        else:
            self._special(found, source, name, target, new)

    def _tree(self, source: int, name: bytes, target: int, new: bytes) -> None:
        """Copy level by level, with a stack: trees may be deeper than Python's."""
        stack = [self._begin(source, name, target, new, b"")]
        top = os.dup(stack[0].target)
        try:
            while stack:
                self._stream.check()
                level = stack[-1]
                item = next(level.items, None)
                if item is None:
                    self._finish(level.source, level.target)
                    _close(stack.pop())
                elif item.is_directory:
                    relative = level.relative + item.name + b"/"
                    stack.append(
                        self._begin(level.source, item.name, level.target, item.name, relative)
                    )
                    walking.allow_depth(len(stack))
                else:
                    self._member(level, item.name, top)
            kernel.syncfs(top)
        finally:
            os.close(top)
            for level in stack:
                _close(level)

    def _begin(self, source: int, name: bytes, target: int, new: bytes, relative: bytes) -> _Level:
        inside = walking.open_directory(name, source)
        try:
            os.mkdir(new, 0o700, dir_fd=target)
            copy = walking.open_directory(new, target)
        except OSError:
            os.close(inside)
            raise
        return _Level(walking.walk(inside, recursive=False), inside, copy, relative)

    def _member(self, level: _Level, name: bytes, top: int) -> None:
        found = os.stat(name, dir_fd=level.source, follow_symlinks=False)
        if found.st_nlink > 1:
            first = self._hard_links.setdefault((found.st_dev, found.st_ino), level.relative + name)
            if first != level.relative + name:
                with suppress(OSError):  # a path too long, a limit of links: then a copy
                    os.link(
                        first, name, src_dir_fd=top, dst_dir_fd=level.target, follow_symlinks=False
                    )
                    return
        if stat.S_ISREG(found.st_mode):
            self._file(level.source, name, level.target, name, sync=False)
        else:
            self._special(found, level.source, name, level.target, name)

    def _file(self, source: int, name: bytes, target: int, new: bytes, *, sync: bool) -> None:
        quiet = os.O_NOFOLLOW | os.O_CLOEXEC
        original = os.open(name, os.O_RDONLY | os.O_NONBLOCK | quiet, dir_fd=source)
        try:
            copy = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | quiet, 0o600, dir_fd=target)
            try:
                self._content(original, copy)
                self._finish(original, copy)
                if sync:
                    os.fsync(copy)
            finally:
                os.close(copy)
        finally:
            os.close(original)

    def _content(self, source: int, target: int) -> None:
        """Copy the data between the holes."""
        size = os.fstat(source).st_size
        offset = 0
        while (offset := _next_data(source, offset)) < size:
            end = os.lseek(source, offset, os.SEEK_HOLE)
            os.lseek(source, offset, os.SEEK_SET)
            os.lseek(target, offset, os.SEEK_SET)
            while offset < end:
                copied = spools.copy_content(source, target, min(_PIECE, end - offset))
                if not copied:
                    return
                offset += copied
                self._stream.check_now()
        os.ftruncate(target, size)

    def _special(
        self, found: os.stat_result, source: int, name: bytes, target: int, new: bytes
    ) -> None:
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), new, dir_fd=target)
        else:
            os.mknod(new, found.st_mode & ~0o7000, found.st_rdev, dir_fd=target)
        if self._keep_owner:
            with suppress(PermissionError):
                os.chown(new, found.st_uid, found.st_gid, dir_fd=target, follow_symlinks=False)
        times = (found.st_atime_ns, found.st_mtime_ns)
        os.utime(new, ns=times, dir_fd=target, follow_symlinks=False)

    def _finish(self, source: int, target: int) -> None:
        found = os.fstat(source)
        permissions = found.st_mode & _PERMISSIONS
        if self._keep_owner:
            with suppress(PermissionError):
                os.fchown(target, found.st_uid, found.st_gid)
                permissions = stat.S_IMODE(found.st_mode)
        spools.copy_attributes(source, target)
        os.fchmod(target, permissions)
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def remove(directory: int, name: bytes) -> None:
    """Delete *name* in *directory*, whatever it is; nothing there is fine."""
    with suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=directory)
        except IsADirectoryError:
            deleting.delete_tree(directory, name)


def _close(level: _Level) -> None:
    os.close(level.source)
    os.close(level.target)


def _next_data(fd: int, offset: int) -> int:
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole up to the end
            return os.fstat(fd).st_size
        raise


def _refuse_inside(origin: Place, place: Place) -> None:
    """A directory copied into itself would never end."""
    tree = os.stat(origin.name, dir_fd=origin.directory, follow_symlinks=False)
    fd = os.dup(place.directory)
    try:
        while not os.path.samestat(here := os.fstat(fd), tree):
            above = os.open(b"..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = above
            if os.path.samestat(os.fstat(fd), here):
                return
    finally:
        os.close(fd)
    raise errors.ValidationFailedError(
        f"{to_text(place.path)} is inside {to_text(origin.path)}",
        context={"path": to_text(origin.path), "target": to_text(place.path)},
    )
