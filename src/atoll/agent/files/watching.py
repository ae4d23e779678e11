"""Watching a directory tree, or one file, for changes.

Directories that appear are watched at once and then looked into: what was in them before the
watch began is told as created, and the kernel's own event about such an entry, if there is one
still queued, is left out. Events keep the kernel's order. When its queue overflows, or no more
watches can be had, an overflow event says that changes went unseen.

What this agent writes is seen as one event: a new file as created, a replaced one as modified.
Its temporary files are never told.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from atoll import errors
from atoll.agent.files import filters, infos, inotify, pathnames, spools, walking
from atoll.agent.files.filters import Filter
from atoll.agent.files.inotify import Event, Queue, Tree
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Interrupted, Stream, Terminated
from atoll.wire.agent import HEARTBEAT_INTERVAL
from atoll.wire.frames import Kind

MOVE_TIMEOUT: Final = 0.1
"""Seconds in which the second half of a move must come; then the directory has left the tree."""

_NO_WATCH_LEFT: Final = frozenset({errno.ENOSPC, errno.EMFILE, errno.ENFILE})
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES})
_TYPES: Final = (
    (inotify.CREATE, "create"),
    (inotify.MODIFY, "modify"),
    (inotify.DELETE, "delete"),
    (inotify.MOVED_FROM, "move_from"),
    (inotify.MOVED_TO, "move_to"),
    (inotify.ATTRIB, "attrib"),
)
_REPEATED: Final = frozenset({"modify", "attrib"})


def watch(stream: Stream, fields: Fields) -> None:
    """Send an EVENT for every change at ``path``, until the caller cancels or it is gone."""
    path, chosen = fields.path(), filters.from_request(fields)
    watch_id = fields.optional_text("id") or os.urandom(8).hex()
    only = None
    with pathnames.blame(path):
        if not os.path.isdir(path):
            os.stat(path)
            path, _, only = path.rpartition(b"/")
            chosen = Filter(recursive=False, include=None, exclude=[])
        watcher = Watcher(stream, path or b"/", chosen, only)
        with _started(watcher):
            shown = pathnames.join(path, only or b"")
            watcher.tell("watching", shown, is_directory=only is None, watchId=watch_id)
            watcher.run()


@contextmanager
def _started(watcher: "Watcher") -> Iterator[None]:
    try:
        watcher.start()
        yield
    finally:
        watcher.queue.close()


class Watcher:
    """One watch."""

    def __init__(self, stream: Stream, top: bytes, chosen: Filter, only: bytes | None) -> None:
        self._stream, self._top, self._chosen, self._only = stream, top, chosen, only
        self._last: tuple[str, bytes] | None = None
        self._announced: set[bytes] = set()
        self._leaving: dict[int, int] = {}  # cookie → watch of a directory that was moved away
        self._replacing: set[int] = set()  # cookies of our temporary files
        self._stopped: str | None = None
        self._root = 0
        self._tree = Tree()
        self.queue = Queue()

    def start(self) -> None:
        """Watch the tree.

        Raises:
            WatchStartError: the kernel has no more watches to give.
            OSError: the top cannot be read.
        """
        with walking.opened(self._top) as top:
            try:
                self._root = self.queue.add(top)
                self._tree.add(self._root, 0, b"")
                if self._chosen.recursive:
                    self._cover(self._root, top, announce=False)
            except OSError as error:
                if error.errno not in _NO_WATCH_LEFT:
                    raise
                raise errors.WatchStartError(
                    "no more directories can be watched",
                    context={"path": pathnames.to_text(self._top)},
                    suggestion="exclude large directories, or raise fs.inotify.max_user_watches",
                ) from error

    def run(self) -> None:
        """Tell of changes until the watch ends; then send END."""
        try:
            self._watch()
        except Terminated:
            self._stopped = "sandbox_stopped"
        with suppress(Interrupted):
            self.tell("stopped", self._top, is_directory=True, reason=self._stopped)
            self._stream.send_json(Kind.END, {})

    def _watch(self) -> None:
        while self._stopped is None:
            timeout = MOVE_TIMEOUT if self._leaving else HEARTBEAT_INTERVAL
            ready = self._stream.wanted_by(timeout, self.queue.fd)
            if ready is False:
                self._stopped = "cancelled"
            elif ready is None and self._leaving:
                self._forget_left()
            elif ready is None:
                self._stream.send(Kind.HEARTBEAT)
            else:
                self._drain()

    def tell(self, type: str, path: bytes, *, is_directory: bool, **more: Any) -> None:
        """Send one event."""
        self._last = (type, path)
        event = {
            "type": type,
            "path": pathnames.to_text(path),
            "isDirectory": is_directory,
            "timestamp": infos.now(),
        }
        self._stream.send_json(Kind.EVENT, event | more)

    def _drain(self) -> None:
        while self._stopped is None and (events := self.queue.read()):
            for event in events:
                if event.mask & inotify.OVERFLOW:
                    self._start_again()
                    break  # the rest speaks of watches that are no more
                self._handle(event)
            self._stream.check()
        self._announced.clear()
        self._last = None

    def _handle(self, event: Event) -> None:
        if event.mask & inotify.IGNORED:
            self._tree.discard(event.watch)
        elif event.watch in self._tree:
            if event.name:
                self._handle_entry(event)
            elif event.watch == self._root:
                self._handle_root(event)

    def _handle_root(self, event: Event) -> None:
        if event.mask & inotify.DELETE_SELF:
            self._stopped = "deleted"
        elif event.mask & inotify.MOVE_SELF:
            self._stopped = "moved"
        elif event.mask & inotify.UNMOUNT:
            self._stopped = "unmounted"
        elif event.mask & inotify.ATTRIB and self._only is None:
            self.tell("attrib", self._top, is_directory=True)

    def _handle_entry(self, event: Event) -> None:
        relative = self._relative(event.watch, event.name)
        if not self._counts(event, relative):
            return
        type = next(word for bit, word in _TYPES if event.mask & bit)
        is_directory = bool(event.mask & inotify.IS_DIRECTORY)
        if event.cookie in self._replacing:
            self._replacing.discard(event.cookie)
            type = "create" if is_directory else "modify"
        if type == "create" and relative in self._announced:
            self._announced.discard(relative)  # and looked into already
            return
        if type not in _REPEATED or (type, self._absolute(relative)) != self._last:
            self._report(type, relative, is_directory=is_directory)
        if is_directory and self._chosen.recursive:
            self._follow(event, announce=type == "create")

    def _counts(self, event: Event, relative: bytes) -> bool:
        if event.mask & inotify.ATTRIB and self._is_nameless(event.name, relative):
            return False
        if spools.is_temporary(event.name):
            if event.mask & inotify.MOVED_FROM:
                self._replacing.add(event.cookie)
            return False
        if self._only is not None:
            return event.name == self._only
        return self._chosen.enters(event.name, relative)

    def _is_nameless(self, name: bytes, relative: bytes) -> bool:
        """Tell whether the kernel speaks of a file that has no name yet, as ``#<inode>``."""
        return name[:1] == b"#" and not os.path.lexists(self._absolute(relative))

    def _report(self, type: str, relative: bytes, *, is_directory: bool) -> None:
        if self._chosen.reports(relative):
            self.tell(type, self._absolute(relative), is_directory=is_directory)

    def _follow(self, event: Event, *, announce: bool) -> None:
        """Keep the tree right after an event about a directory in it."""
        if event.mask & inotify.MOVED_FROM:
            if (known := self._tree.child(event.watch, event.name)) is not None:
                self._leaving[event.cookie] = known
        elif event.mask & (inotify.CREATE | inotify.MOVED_TO):
            moved = self._leaving.pop(event.cookie, None)
            if moved is not None:
                self._tree.add(moved, event.watch, event.name)
            try:
                self._watch_new(event.watch, event.name, announce=announce, moved=moved is not None)
            except OSError as error:
                if error.errno not in _NO_WATCH_LEFT:
                    raise
                self.tell("overflow", self._top, is_directory=True, reason="limit")

    def _watch_new(self, parent: int, name: bytes, *, announce: bool, moved: bool) -> None:
        """Watch a directory that appeared in a watched one, and what is in it.

        One that was *moved* inside the tree is known, except for parts of it that are very new;
        one that was made may be known too, when the event of a predecessor of the same name was
        handled after it was made. What is in it is then told once more rather than not at all.
        """
        try:
            fd = walking.open_directory(self._absolute(self._relative(parent, name)), -1)
        except OSError as error:
            if error.errno in _GONE:
                return
            raise
        try:
            _, watch = self._add(fd, parent, name)
            self._cover(watch, fd, announce=announce or moved, entries_known=moved)
        except FileNotFoundError:  # deleted between being opened and being watched
            return
        finally:
            os.close(fd)

    def _add(self, fd: int, parent: int, name: bytes) -> tuple[bool, int]:
        watch = self.queue.add(fd)
        known = watch in self._tree
        self._tree.add(watch, parent, name)
        return known, watch

    def _cover(self, top: int, fd: int, *, announce: bool, entries_known: bool = False) -> None:
        """Watch all directories below a watched one.

        A directory is watched before it is read, so that nothing falls between. What is in one
        that was not watched before is told of when *announce*.
        """
        above = self._relative(top, b"")
        watches = {b"": (top, not entries_known)}
        accept = lambda name, relative, _: self._chosen.enters(name, above + relative)  # noqa: E731
        for item in walking.walk(fd, accept=accept):
            parent, fresh = watches.get(item.relative.rpartition(b"/")[0], (0, False))
            if announce and fresh:
                self._announced.add(above + item.relative)
                self._report("create", above + item.relative, is_directory=item.is_directory)
            if item.is_directory and parent:
                with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                    below = walking.open_directory(item.name, item.directory)
                    try:
                        known, watch = self._add(below, parent, item.name)
                        watches[item.relative] = (watch, not known)
                    finally:
                        os.close(below)

    def _forget_left(self) -> None:
        for watch in self._leaving.values():
            for gone in self._tree.discard(watch):
                self.queue.remove(gone)
        self._leaving.clear()

    def _start_again(self) -> None:
        """After an overflow nothing is known of moves: build the tree anew, then tell."""
        self.queue.close()
        self.queue, self._tree = Queue(), Tree()
        self._leaving.clear()
        self._replacing.clear()
        try:
            self.start()
        except OSError:
            self._stopped = "deleted"
        self.tell("overflow", self._top, is_directory=True, reason="queue")

    def _relative(self, watch: int, name: bytes) -> bytes:
        above = self._tree.path(watch)
        return above + b"/" + name if above else name

    def _absolute(self, relative: bytes) -> bytes:
        return pathnames.join(self._top, relative)
