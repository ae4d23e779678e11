"""inotify(7): a queue of events, and which directory of a tree each watch stands for.

A watch follows its directory wherever that is moved, so the tree is kept by parent and name and
a move changes one node. Paths are built when an event is told.
"""

import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from atoll.agent import kernel

MODIFY: Final = 0x2
ATTRIB: Final = 0x4
MOVED_FROM: Final = 0x40
MOVED_TO: Final = 0x80
CREATE: Final = 0x100
DELETE: Final = 0x200
DELETE_SELF: Final = 0x400
MOVE_SELF: Final = 0x800
UNMOUNT: Final = 0x2000
OVERFLOW: Final = 0x4000
IGNORED: Final = 0x8000
IS_DIRECTORY: Final = 0x4000_0000
_ONLY_DIRECTORY: Final = 0x0100_0000
_EXCLUDE_UNLINKED: Final = 0x0400_0000

_WATCHED: Final = (
    MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
    | _ONLY_DIRECTORY | _EXCLUDE_UNLINKED
)  # fmt: skip
_EVENT: Final = struct.Struct("iIII")
_READ: Final = 1 << 16


class Event(NamedTuple):
    """One event of the queue; `name` is empty when it is about the watched directory itself."""

    watch: int
    mask: int
    cookie: int
    name: bytes


class Queue:
    """An inotify instance."""

    def __init__(self) -> None:
        self.fd = kernel.inotify_init()

    def add(self, directory: int) -> int:
        """Watch the directory behind a descriptor; a watched one keeps its number."""
        return kernel.inotify_add_watch(self.fd, b"/proc/self/fd/%d" % directory, _WATCHED)

    def remove(self, watch: int) -> None:
        """Stop watching."""
        kernel.inotify_rm_watch(self.fd, watch)

    def read(self) -> list[Event]:
        """Return the next events in order; none when the queue is empty."""
        try:
            return list(parse(os.read(self.fd, _READ)))
        except BlockingIOError:
            return []

    def close(self) -> None:
        """End all watches."""
        os.close(self.fd)


def parse(data: bytes) -> Iterator[Event]:
    """Yield the events of one read."""
    at = 0
    while at < len(data):
        watch, mask, cookie, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size + length
        yield Event(watch, mask, cookie, data[at - length : at].rstrip(b"\0"))


class Tree:
    """The watched directories."""

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[int, bytes]] = {}
        self._children: dict[int, dict[bytes, int]] = {}

    def __contains__(self, watch: int) -> bool:
        return watch in self._nodes

    def add(self, watch: int, parent: int, name: bytes) -> None:
        """Put a directory in its place, also when it had another one before. Root: parent 0."""
        self._detach(watch)
        self._nodes[watch] = (parent, name)
        self._children.setdefault(parent, {})[name] = watch

    def child(self, parent: int, name: bytes) -> int | None:
        """Return the watch of a directory in *parent*, or None."""
        return self._children.get(parent, {}).get(name)

    def path(self, watch: int) -> bytes:
        """Return the path relative to the root, which is empty itself."""
        parts: list[bytes] = []
        while watch in self._nodes:
            watch, name = self._nodes[watch]
            parts.append(name)
        return b"/".join(part for part in reversed(parts) if part)

    def discard(self, watch: int) -> list[int]:
        """Forget a directory and all below it; return their watches."""
        gone = []
        waiting = [watch]
        while waiting:
            one = waiting.pop()
            waiting += self._children.pop(one, {}).values()
            self._detach(one)
            if self._nodes.pop(one, None):
                gone.append(one)
        return gone

    def _detach(self, watch: int) -> None:
        parent, name = self._nodes.get(watch, (0, b""))
        siblings = self._children.get(parent, {})
        if siblings.get(name) == watch:
            del siblings[name]
