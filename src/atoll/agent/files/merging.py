"""Moving a finished tree into an existing directory, entry by entry.

Looked at first, then done: a directory in the place of a file, or the other way round, is found
before anything was moved. Directories that are there keep their mode and what else is in them.
"""

import errno
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from atoll.agent import kernel
from atoll.agent.files import copying, pathnames, walking
from atoll.agent.files.pathnames import Place
from atoll.agent.files.streams import Stream


class _Pair(NamedTuple):
    source: int
    target: int
    names: list[bytes]
    path: bytes


Act = Callable[[_Pair, bytes], None]


def merge(stream: Stream, source: int, target: int, path: bytes) -> None:
    """Move all that is in *source* into *target*, replacing files of the same name.

    Args:
        stream: looked at now and then while nothing was moved yet.
        source: a directory on the target's file system.
        target: the directory to move into.
        path: its path, for messages.

    Raises:
        SandboxError: a file meets a directory or link; nothing was moved.
    """
    _traverse(source, target, path, lambda _pair, _name: stream.check())
    _traverse(source, target, path, lambda pair, name: _move(stream, pair, name))


def sync(directory: int) -> None:
    """Make a tree durable at once, with one call for its whole file system."""
    kernel.syncfs(directory)


def _traverse(source: int, target: int, path: bytes, act: Act) -> None:
    stack = [_pair(os.dup(source), os.dup(target), path)]
    try:
        while stack:
            pair = stack[-1]
            if not pair.names:
                stack.pop()
                _close(pair)
                continue
            name = pair.names.pop()
            if below := _both_directories(pair, name):
                stack.append(below)
                walking.allow_depth(len(stack))
            else:
                act(pair, name)
    finally:
        for pair in stack:
            _close(pair)


def _pair(source: int, target: int, path: bytes) -> _Pair:
    names = [os.fsencode(name) for name in os.listdir(source)]
    return _Pair(source, target, names, path)


def _close(pair: _Pair) -> None:
    os.close(pair.source)
    os.close(pair.target)


def _both_directories(pair: _Pair, name: bytes) -> _Pair | None:
    """Return the pair of directories *name*; None when it is to be moved as it is."""
    path = pathnames.join(pair.path, name)
    with pathnames.blame(path):
        ours = os.stat(name, dir_fd=pair.source, follow_symlinks=False)
        theirs = Place(pair.target, name, path).stat()
        if theirs is None:
            return None
        if not stat.S_ISDIR(ours.st_mode):
            if stat.S_ISDIR(theirs.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            return None
        if not stat.S_ISDIR(theirs.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        source = walking.open_directory(name, pair.source)
        return _pair(source, walking.open_directory(name, pair.target), path)


def _move(stream: Stream, pair: _Pair, name: bytes) -> None:
    path = pathnames.join(pair.path, name)
    with pathnames.blame(path):
        try:
            os.rename(name, name, src_dir_fd=pair.source, dst_dir_fd=pair.target)
        except OSError as error:
            if error.errno != errno.EXDEV:  # another file system is mounted in the target
                raise
            origin, place = Place(pair.source, name, path), Place(pair.target, name, path)
            copying.Copy(stream, keep_owner=True).aside(origin, place)
