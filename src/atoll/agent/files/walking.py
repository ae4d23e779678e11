"""Walking a tree: sorted, resumable, with flat memory, never through links.

Names come directory by directory in byte order, a directory before what is in it. Of a large
directory only the next names are held, so that a million of them cost time and not memory.
Directories are opened relative to their parent, never by a path that could lead elsewhere by
then; what cannot be opened (gone, or not the user's) is not descended into.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

BATCH: Final = 20_000
"""Names of one directory held at a time: about 2 MB."""

_DEEP: Final = 200


class Item(NamedTuple):
    """One entry. Its directory's descriptor is valid until the next item."""

    directory: int
    name: bytes
    relative: bytes
    is_directory: bool


Items = Iterator[Item]

Accept = Callable[[bytes, bytes, bool], bool]
"""Called with name, relative path and whether it is a directory; False leaves the entry and all
below it out."""


class _Level:
    def __init__(self, fd: int, prefix: bytes, after: bytes) -> None:
        self.fd, self.prefix, self.after = fd, prefix, after
        self.batch: list[tuple[bytes, bool]] = []
        self.complete = False


def open_directory(path: bytes, at: int | None = None) -> int:
    """Open a directory to read it; with *at* given, *path* is a name in it and no link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    return os.open(path, flags if at is None else flags | os.O_NOFOLLOW, dir_fd=at)


@contextmanager
def opened(path: bytes) -> Iterator[int]:
    """Hold the directory *path* open."""
    fd = open_directory(path)
    try:
        yield fd
    finally:
        os.close(fd)


def walk(
    top: int,
    *,
    accept: Accept | None = None,
    recursive: bool = True,
    after: Sequence[bytes] = (),
    batch: int = BATCH,
) -> Items:
    """Yield what is in the directory *top*.

    Args:
        top: a descriptor from `open_directory`; it stays open.
        accept: which entries count.
        recursive: descend into directories.
        after: components of the relative path to go on behind; it need not exist any more.
        batch: names of one directory held at a time.
    """
    stack = [_Level(os.dup(top), b"", after[0] if after else b"")]
    try:
        if recursive:
            stack += _descend_along(stack[0], after)
        while stack:
            level = stack[-1]
            if not level.batch and not _refill(level, accept, batch):
                os.close(stack.pop().fd)
                continue
            name, is_directory = level.batch.pop()
            item = Item(level.fd, name, level.prefix + name, is_directory)
            yield item
            if recursive and is_directory:
                stack += _below(level, name)
                allow_depth(len(stack))
    finally:
        for level in stack:
            os.close(level.fd)


def _descend_along(level: _Level, after: Sequence[bytes]) -> Iterator[_Level]:
    for done, name in enumerate(after, start=1):
        below = next(iter(_below(level, name)), None)
        if below is None:
            return
        level = below
        level.after = after[done] if done < len(after) else b""
        yield level


def _below(level: _Level, name: bytes) -> list[_Level]:
    try:
        fd = open_directory(name, level.fd)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link took the directory's place
            return []
        raise
    return [_Level(fd, level.prefix + name + b"/", b"")]


def _refill(level: _Level, accept: Accept | None, size: int) -> bool:
    if level.complete:
        return False
    names = list(_smallest(_names(level, accept), size))
    level.complete = len(names) < size
    if names:
        level.after = names[-1][0]
    level.batch = names[::-1]
    return bool(names)


def _names(level: _Level, accept: Accept | None) -> Iterator[tuple[bytes, bool]]:
    after, prefix = level.after, level.prefix
    with os.scandir(level.fd) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            if name > after:
                is_directory = _is_directory(entry)
                if accept is None or accept(name, prefix + name, is_directory):
                    yield name, is_directory


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _smallest(names: Iterator[tuple[bytes, bool]], size: int) -> list[tuple[bytes, bool]]:
    """Return the *size* smallest, sorted, holding at most twice as many."""
    kept: list[tuple[bytes, bool]] = []
    bound: tuple[bytes, bool] | None = None
    for name in names:
        if bound is not None and name > bound:
            continue
        kept.append(name)
        if len(kept) >= 2 * size:
            kept.sort()
            del kept[size:]
            bound = kept[-1]
    kept.sort()
    return kept[:size]


def allow_depth(depth: int) -> None:
    """Let a tree be as deep as the sandbox allows descriptors: it holds one per level."""
    if depth != _DEEP:
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
