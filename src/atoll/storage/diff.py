"""What differs between two states of a writable layer, told as changes of the root above it.

Both are folders of an overlay (``upper``): they hold only what differs from the image, with
whiteouts for what was deleted. So the time depends on what a sandbox ever wrote, not on its image.
A file is the same when inode number, time of change, size, mode and owner are: copies of a layer
keep them, and nobody inside can set a time of change. Copies on one file system, as an engine without
root makes them, have other numbers; there content decides.

The trees were made by code that nobody trusts, to take as much memory and time as they can: only
the names of one folder at each depth are held, and how many there may be has an end.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from atoll.errors import FilesystemError, from_os_error
from atoll.host import overlay

_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
_OPAQUE = overlay.attribute("opaque")
_MAX_DEPTH = 500
_PIECE = 1 << 18  # bytes

MAX_IN_FOLDER = 250_000
"""Entries of one folder: about 60 MB for both states."""
MAX_ENTRIES = 1_000_000
"""Entries of all folders that are compared: some 20 seconds."""


class Change(NamedTuple):
    """A path below the root that differs. Size in bytes, of what is there now."""

    path: str
    kind: str  # created, modified, deleted
    type: str  # file, directory, symlink, other
    size: int


def changes(before: Path, now: Path, lowers: Sequence[Path]) -> Iterator[Change]:
    """Yield what differs, in order of path. What was deleted as a folder is told as one.

    Args:
        before: an upper folder.
        now: the same one later.
        lowers: the image's folders, the topmost first.

    Raises:
        FilesystemError: folders are nested too deep, hold too much, or cannot be read.
    """
    try:
        yield from _Comparison().inside("", _Folder(before, now, tuple(lowers)), 0)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise _too_deep() from error
        raise from_os_error(error, "a folder that is compared") from error


class _Folder(NamedTuple):
    """One folder in each of the trees; None, or left out, where that tree has none of this name.

    Only folders are ever entered: a link in one of the trees leads nowhere.
    """

    before: Path | None
    now: Path | None
    lowers: tuple[Path, ...]


class _Comparison:
    """One walk, and how much it has seen."""

    def __init__(self) -> None:
        self._seen = 0

    def inside(self, name: str, folder: _Folder, depth: int) -> Iterator[Change]:
        """Yield what differs in a folder and below it."""
        if depth > _MAX_DEPTH:
            raise _too_deep()
        hid, hides = _is_opaque(folder.before), _is_opaque(folder.now)
        # Made anew, or put back: what the image has there went, or came.
        for entry in self._names(folder, image=hid != hides):
            image, lowers = _in_image(folder.lowers, entry)
            old, new = _found(folder.before, entry), _found(folder.now, entry)
            if _is_copied(folder, entry, old, new):
                continue
            was = _merged(old, None if hid else image)
            there = _merged(new, None if hides else image)
            yield from _change(f"{name}/{entry}", was, there)
            if there and stat.S_ISDIR(there.st_mode):
                inner = _Folder(
                    _within(folder.before, entry, old), _within(folder.now, entry, new), lowers
                )
                if inner.before or inner.now:
                    yield from self.inside(f"{name}/{entry}", inner, depth + 1)

    def _names(self, folder: _Folder, *, image: bool) -> list[str]:
        """Return the names in the folder, in order."""
        names: set[str] = set()
        for place in (folder.before, folder.now, *(folder.lowers if image else ())):
            if place is not None:
                with os.scandir(place) as found:
                    for entry in found:
                        names.add(entry.name)
                        if len(names) > MAX_IN_FOLDER:
                            raise _too_much(MAX_IN_FOLDER, "one folder holds")
        self._seen += len(names)
        if self._seen > MAX_ENTRIES:
            raise _too_much(MAX_ENTRIES, "folders hold")
        return sorted(names)


def _too_deep() -> FilesystemError:
    return FilesystemError(
        f"folders are nested more than {_MAX_DEPTH} deep, or their names are too long in all"
    )


def _too_much(limit: int, what: str) -> FilesystemError:
    return FilesystemError(
        f"{what} more than {limit:,} entries, too many to be compared",
        context={"limit": limit},
        suggestion="delete what is of no use, and take a new snapshot",
    )


def _change(
    path: str, was: os.stat_result | None, there: os.stat_result | None
) -> Iterator[Change]:
    if there is None:
        if was is not None:
            yield Change(path, "deleted", _type(was), 0)
    elif was is None:
        yield Change(path, "created", _type(there), _size(there))
    elif _differs(was, there):
        yield Change(path, "modified", _type(there), _size(there))


def _in_image(
    lowers: tuple[Path, ...], entry: str
) -> tuple[os.stat_result | None, tuple[Path, ...]]:
    """Return what the image shows under this name, and the folders that make it up if it is one."""
    first: os.stat_result | None = None
    folders: list[Path] = []
    for lower in lowers:
        if (found := _found(lower, entry)) is None:
            continue
        first = first or found
        if not stat.S_ISDIR(found.st_mode):
            break  # a file or a whiteout hides what is below it
        folders.append(lower / entry)
        if _is_opaque(lower / entry):
            break
    return _merged(first, None), tuple(folders)


def _merged(upper: os.stat_result | None, image: os.stat_result | None) -> os.stat_result | None:
    """Return what is seen; a whiteout is a character device 0, 0."""
    if upper is None:
        return image
    return None if stat.S_ISCHR(upper.st_mode) and upper.st_rdev == 0 else upper


def _within(folder: Path | None, entry: str, found: os.stat_result | None) -> Path | None:
    return folder / entry if folder and found and stat.S_ISDIR(found.st_mode) else None


def _found(folder: Path | None, entry: str) -> os.stat_result | None:
    if folder is None:
        return None
    try:
        return os.lstat(folder / entry)
    except FileNotFoundError:
        return None


def _is_opaque(folder: Path | None) -> bool:
    if folder is None:
        return False
    try:
        return os.getxattr(folder, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def _differs(was: os.stat_result, now: os.stat_result) -> bool:
    if stat.S_ISDIR(was.st_mode) and stat.S_ISDIR(now.st_mode):
        # What is in it is told by itself.
        return (was.st_mode, was.st_uid, was.st_gid) != (now.st_mode, now.st_uid, now.st_gid)
    return _identity(was) != _identity(now)


def _is_copied(
    folder: _Folder, entry: str, old: os.stat_result | None, new: os.stat_result | None
) -> bool:
    """Whether one is a copy of the other on the same file system."""
    if not (old and new and folder.before and folder.now):
        return False
    if old.st_dev != new.st_dev or _identity(old)[2:] != _identity(new)[2:]:
        return False
    return _same_content(folder.before / entry, folder.now / entry, old)


def _same_content(one: Path, other: Path, found: os.stat_result) -> bool:
    """Compare two files or links of one size; what may not be read counts as different."""
    try:
        if stat.S_ISLNK(found.st_mode):
            return one.readlink() == other.readlink()
        return stat.S_ISREG(found.st_mode) and _equal(one, other)
    except OSError:
        return False


def _equal(one: Path, other: Path) -> bool:
    with _opened(one) as first, _opened(other) as second:
        while (piece := first.read(_PIECE)) == second.read(_PIECE):
            if not piece:
                return True
    return False


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(
        os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
    )


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return (
        found.st_ino,
        found.st_ctime_ns,
        found.st_size,
        found.st_mode,
        found.st_uid,
        found.st_gid,
    )


def _type(found: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(found.st_mode), "other")


def _size(found: os.stat_result) -> int:
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
