"""What differs between two states of a writable layer, told as changes of the root above it.

Both are folders of an overlay (``upper``): they hold only what differs from the image, with
whiteouts for what was deleted. So the time depends on what a sandbox ever wrote, not on its image.
A file is the same when inode number, time of change, size, mode and owner are: copies of a layer
keep them, and nobody inside can set a time of change.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from atoll.errors import FilesystemError

_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
_OPAQUE = "trusted.overlay.opaque"
_MAX_DEPTH = 500


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
        FilesystemError: folders are nested too deep.
        OSError: a folder cannot be read.
    """
    yield from _inside("", _Folder(before, now, tuple(lowers)), 0)


class _Folder(NamedTuple):
    """One folder in each of the trees; None, or left out, where that tree has none of this name.

    Only folders are ever entered: a link in one of the trees leads nowhere.
    """

    before: Path | None
    now: Path | None
    lowers: tuple[Path, ...]


def _inside(name: str, folder: _Folder, depth: int) -> Iterator[Change]:
    if depth > _MAX_DEPTH:
        raise FilesystemError(f"folders are nested more than {_MAX_DEPTH} deep")
    old, new = _entries(folder.before), _entries(folder.now)
    names = old.keys() | new.keys()
    hid, hides = _is_opaque(folder.before), _is_opaque(folder.now)
    if hid != hides:  # made anew, or put back: what the image has there went, or came
        names |= {entry for lower in folder.lowers for entry in _entries(lower)}
    for entry in sorted(names):
        image, lowers = _in_image(folder.lowers, entry)
        was = _merged(old.get(entry), None if hid else image)
        there = _merged(new.get(entry), None if hides else image)
        yield from _change(f"{name}/{entry}", was, there)
        if there and stat.S_ISDIR(there.st_mode):
            inner = _Folder(
                _within(folder.before, entry, old), _within(folder.now, entry, new), lowers
            )
            if inner.before or inner.now:
                yield from _inside(f"{name}/{entry}", inner, depth + 1)


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
        try:
            found = os.lstat(lower / entry)
        except FileNotFoundError:
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


def _within(folder: Path | None, entry: str, entries: Mapping[str, os.stat_result]) -> Path | None:
    found = entries.get(entry)
    return folder / entry if folder and found and stat.S_ISDIR(found.st_mode) else None


def _entries(folder: Path | None) -> dict[str, os.stat_result]:
    if folder is None:
        return {}
    with os.scandir(folder) as found:
        return {entry.name: entry.stat(follow_symlinks=False) for entry in found}


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
