"""Changes between two states of a layer as one patch, as ``git diff`` writes it.

Text files, links and modes are in it. What a patch cannot say is named in lines before it, which
patch programs skip: binary and large files, folders, special files. Both states are read-only;
links in them are read and never followed.
"""

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from atoll.host import overlay
from atoll.storage.diff import Change
from atoll.storage.textdiff import hunks

MAX_FILE = 1 << 20
"""Bytes of a file that is compared line by line, before and now."""
MAX_PATCH = 16 << 20
"""Bytes of a whole patch; changes beyond are named only."""
MAX_SECONDS = 30.0
"""Time after which changes are named only: code inside chooses what is compared."""

_OPAQUE = overlay.attribute("opaque")
_SAFE = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')


class Side(NamedTuple):
    """A file before or after: how git writes its mode, and its content."""

    mode: str
    content: bytes


class Unsaid(Exception):  # noqa: N818  # no failure: a file that no patch can tell
    """Why a change is named only."""


def write(
    changes: Iterable[Change], before: Path, now: Path, lowers: Sequence[Path]
) -> tuple[bytes, bool]:
    """Return the patch, and whether all changes are in it or named.

    Args:
        changes: what differs, as `diff.changes` yields it.
        before: an upper folder.
        now: the same one later.
        lowers: the image's folders, the topmost first.

    Raises:
        OSError: a file cannot be read.
    """
    named: list[bytes] = []
    told: list[bytes] = []
    left, ends, complete = MAX_PATCH, time.monotonic() + MAX_SECONDS, True
    for change in changes:
        try:
            if time.monotonic() > ends:
                raise Unsaid("the patch takes too long")
            text = _told(change, (before, *lowers), (now, *lowers))
            if len(text) > left:
                raise Unsaid("the patch is too large")
            told.append(text)
        except Unsaid as reason:
            text = b"# " + _quoted(change.path) + f": {change.kind}, {reason}\n".encode()
            named.append(text)
        left -= len(text)
        if left < 0:
            complete = False
            break
    return b"".join(named + told), complete


def _told(change: Change, old: Sequence[Path], new: Sequence[Path]) -> bytes:
    if change.type == "directory":
        raise Unsaid("directory")
    before = None if change.kind == "created" else _side(old, change.path)
    now = None if change.kind == "deleted" else _side(new, change.path)
    name = change.path.lstrip("/")
    if before and now and before.mode[:3] != now.mode[:3]:  # a file became a link, or the reverse
        return _file(name, before, None) + _file(name, None, now)
    return _file(name, before, now)


def _file(name: str, before: Side | None, now: Side | None) -> bytes:
    lines = list(hunks(before.content if before else b"", now.content if now else b""))
    old, new = _quoted(f"a/{name}"), _quoted(f"b/{name}")
    head = b"diff --git " + old + b" " + new + b"\n" + _modes(before, now)
    if not lines:
        return head if before is None or now is None or before.mode != now.mode else b""
    sides = (
        b"--- " + (old if before else b"/dev/null") + b"\n",
        b"+++ " + (new if now else b"/dev/null") + b"\n",
    )
    return b"".join((head, *sides, *lines))


def _modes(before: Side | None, now: Side | None) -> bytes:
    if before is None:
        return f"new file mode {now.mode if now else ''}\n".encode()
    if now is None:
        return f"deleted file mode {before.mode}\n".encode()
    if before.mode != now.mode:
        return f"old mode {before.mode}\nnew mode {now.mode}\n".encode()
    return b""


def _side(layers: Sequence[Path], path: str) -> Side | None:
    found = locate(layers, path)
    if found is None:
        return None
    told = os.lstat(found)
    if stat.S_ISLNK(told.st_mode):
        target = os.readlink(found)  # noqa: PTH115  # as it is: a Path would tidy it
        return Side("120000", os.fsencode(target))
    if stat.S_ISDIR(told.st_mode):
        raise Unsaid("a directory became something else")
    if not stat.S_ISREG(told.st_mode):
        raise Unsaid("special file")
    if told.st_size > MAX_FILE:
        raise Unsaid(f"{told.st_size} bytes")
    content = found.read_bytes()
    if b"\0" in content:
        raise Unsaid(f"binary, {told.st_size} bytes")
    return Side("100755" if told.st_mode & 0o111 else "100644", content)


def locate(layers: Sequence[Path], path: str) -> Path | None:
    """Return where *path* is in an overlay of *layers*, the topmost first; None: nowhere."""
    parts = path.strip("/").split("/")
    for layer in layers:
        where, end = _in_layer(layer, parts)
        if where or end:
            return where
    return None


def _in_layer(layer: Path, parts: Sequence[str]) -> tuple[Path | None, bool]:
    """Return where it is in one layer, and whether that hides what the lower ones have."""
    at, hides = layer, False
    for number, part in enumerate(parts):
        at /= part
        try:
            told = os.lstat(at)
        except (FileNotFoundError, NotADirectoryError):
            return None, hides
        if stat.S_ISCHR(told.st_mode) and told.st_rdev == 0:
            return None, True
        if number == len(parts) - 1:
            return at, True
        if not stat.S_ISDIR(told.st_mode):
            return None, True
        hides = hides or _is_opaque(at)
    return None, hides


def _is_opaque(folder: Path) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def _quoted(name: str) -> bytes:
    """Return a name as git writes it: quoted where it has anything but plain characters."""
    raw = os.fsencode(name)
    if all(byte in _SAFE for byte in raw):
        return raw
    return b'"' + b"".join(_escaped(raw)) + b'"'


def _escaped(raw: bytes) -> Iterator[bytes]:
    for byte in raw:
        yield bytes([byte]) if byte in _SAFE else b"\\%03o" % byte
