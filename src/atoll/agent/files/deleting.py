"""Deleting files and trees.

A tree is deleted bottom up, relative to descriptors of its directories, so that a directory
swapped for a link meanwhile is unlinked as the link it is. What cannot be deleted is left, the
rest goes, and the first error is the answer.
"""

import errno
import itertools
import os
import stat
from typing import Any

from atoll import errors
from atoll.agent.files import pathnames, walking
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Stream


def delete_file(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Delete what ``path`` names, a link as itself; directories only with ``recursive``."""
    path, recursive = fields.path(), fields.flag("recursive")
    with pathnames.entry(path) as place:
        found = place.require()
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(place.name, dir_fd=place.directory)
        elif recursive:
            delete_tree(place.directory, place.name, stream)
        else:
            text = pathnames.to_text(path)
            raise errors.IsDirectoryError(
                f"Is a directory: {text}",
                context={"path": text},
                suggestion="use recursive=True to delete a directory and all in it",
            )
    return {"success": True}


def delete_tree(
    directory: int, name: bytes, stream: Stream | None = None, *, one_device: bool = False
) -> None:
    """Delete the directory *name* in *directory* with all below it.

    Args:
        directory: a descriptor.
        name: a name in it.
        stream: whose caller may lose interest.
        one_device: leave what is mounted in the tree, and what leads to it.

    Raises:
        OSError: the first thing that went wrong; all that could be deleted is gone.
        Interrupted: *stream*'s caller does not want it any more; part of the tree is gone.
    """
    failures: list[OSError] = []
    try:
        top = walking.open_directory(name, directory)
    except OSError as error:
        failures.append(error)
    else:
        try:
            _empty(top, stream, failures, os.fstat(top).st_dev if one_device else None)
        finally:
            os.close(top)
    try:
        os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise (failures[0] if failures else error) from None


class _Level:
    """A directory that is being emptied."""

    def __init__(self, fd: int, name: bytes) -> None:
        self.fd, self.name = fd, name
        self.names: list[bytes] = []
        self.stuck: set[bytes] = set()
        self.more = True

    def next(self) -> bytes | None:
        """Return a name that was not tried yet, or None."""
        if not self.names and self.more:
            with os.scandir(self.fd) as entries:
                fresh = (n for e in entries if (n := os.fsencode(e.name)) not in self.stuck)
                self.names = list(itertools.islice(fresh, walking.BATCH))
            self.more = len(self.names) == walking.BATCH
        return self.names.pop() if self.names else None


def _empty(top: int, stream: Stream | None, failures: list[OSError], device: int | None) -> None:
    """Delete all in *top* that is on *device*. A stack, not recursion: trees may be deeper than Python's stack."""
    stack = [_Level(os.dup(top), b"")]
    try:
        while True:
            if stream is not None:
                stream.check()
            level = stack[-1]
            name = level.next()
            if name is not None:
                below = _delete_entry(level, name, failures)
                if below is not None and device not in {None, os.fstat(below.fd).st_dev}:
                    os.close(below.fd)
                    failures.append(OSError(errno.EBUSY, os.strerror(errno.EBUSY)))
                    level.stuck.add(name)
                elif below is not None:
                    stack.append(below)
                    walking.allow_depth(len(stack))
                continue
            os.close(stack.pop().fd)
            if not stack:
                return
            _remove_emptied(stack[-1], level.name, failures)
    finally:
        for level in stack:
            os.close(level.fd)


def _delete_entry(level: _Level, name: bytes, failures: list[OSError]) -> _Level | None:
    """Delete *name*, or return it as the directory to be emptied next."""
    try:
        os.unlink(name, dir_fd=level.fd)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        try:
            return _Level(walking.open_directory(name, level.fd), name)
        except OSError as error:
            # It may be empty, which takes no right to read it.
            _remove_emptied(level, name, [])
            if name in level.stuck:
                failures.append(error)
    except OSError as error:
        failures.append(error)
        level.stuck.add(name)
    return None


def _remove_emptied(parent: _Level, name: bytes, failures: list[OSError]) -> None:
    try:
        os.rmdir(name, dir_fd=parent.fd)
    except FileNotFoundError:
        return
    except OSError as error:
        failures.append(error)
        parent.stuck.add(name)
