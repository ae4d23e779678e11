"""Packing a file or directory into one tar stream.

The tree is packed as it is met; a file that changes meanwhile is cut or filled up to the size its
header announced, as tar does, and named in the closing END, like what could not be read. Sockets,
FIFOs and devices are left out. What would be more than a backup may have is refused before it is
read: a file of terabytes that is one hole is hours of zeros.
"""

import os
import stat
from typing import Any, Final

from atoll import errors
from atoll.agent.files import globs, ignores, pathnames, tars, walking
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Stream
from atoll.wire import attributes
from atoll.wire.frames import Kind

FRAME: Final = 1 << 18
"""Bytes of headers and small files that are collected for one frame."""

SMALL: Final = 1 << 16
"""Bytes up to which a file is read into the frame; larger ones are sent from their pages."""

MAX_NAMED: Final = 100


def download(stream: Stream, fields: Fields) -> None:
    """Answer with `Archive`, the bytes of a tar archive, and END with what is in it."""
    path = fields.path()
    excluded = globs.matcher((fields.optional_text("excludes") or "").split(","))
    gitignore = fields.flag("gitignore")
    hard_links = fields.flag("hard_links", default=True)
    with pathnames.blame(path):
        if not stat.S_ISDIR(os.stat(path).st_mode):
            with pathnames.target(path) as place:
                packer = Packer(stream, path, hard_links=hard_links)
                packer.add(place.directory, place.name, path.rpartition(b"/")[2])
                packer.finish()
            return
        with walking.opened(path) as top:
            ignored = ignores.Ignored(top)
            packer = Packer(stream, path, hard_links=hard_links)
            for item in walking.walk(
                top,
                accept=lambda _name, relative, is_directory: (
                    not (
                        excluded(relative)
                        or (gitignore and ignored(relative, is_directory=is_directory))
                    )
                ),
            ):
                packer.add(item.directory, item.name, item.relative)
            packer.finish()


class Packer:
    """Writes the members of one archive to the caller.

    Args:
        hard_links: the second name of a file is a link to the first, not the content again.
        limit: bytes of content, holes included; None: as many as there are.
        keep_attributes: extended attributes of users and access lists are kept.
    """

    def __init__(
        self,
        stream: Stream,
        path: bytes,
        *,
        hard_links: bool,
        limit: int | None = None,
        keep_attributes: bool = False,
    ) -> None:
        self._stream = stream
        self._limit, self._keep_attributes = limit, keep_attributes
        self._keep_links = hard_links
        self._frame = bytearray()
        self._hard_links: dict[tuple[int, int], bytes] = {}
        self._files = self._size = 0
        self._named: dict[str, list[str]] = {"changed": [], "skipped": []}
        stream.send_json(Kind.REPLY, {"path": pathnames.to_text(path), "format": "tar"})

    def add(self, directory: int, name: bytes, member: bytes) -> None:
        """Add one entry as *member*, a directory without what is in it."""
        self._stream.check()
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                self._add_file(directory, name, member, found)
            elif stat.S_ISDIR(found.st_mode):
                self._add_directory(directory, name, member, found)
            elif stat.S_ISLNK(found.st_mode):
                link = os.readlink(name, dir_fd=directory)
                self._put(tars.header(member, found, link=link))
            else:
                return
        except FileNotFoundError:
            return
        except PermissionError:
            self._note("skipped", member)
            return
        self._files += 1

    def finish(self) -> None:
        """End the archive."""
        self._put(bytes(2 * tars.BLOCK))
        self._flush()
        end: dict[str, Any] = {"files": self._files, "size": self._size, **self._named}
        self._stream.send_json(Kind.END, end)

    def _add_file(self, directory: int, name: bytes, member: bytes, found: os.stat_result) -> None:
        first = self._hard_links.get((found.st_dev, found.st_ino))
        if first is not None:
            self._put(tars.header(member, found, link=first, hard=True))
            return
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=directory)
        try:
            found = os.fstat(file)
            self._admit(found.st_size, member)
            self._put(tars.header(member, found, records=self._records(file, member)))
            if self._content(file, found.st_size) < found.st_size:
                self._note("changed", member)
            self._put(tars.padding(found.st_size))
            self._size += found.st_size
            if found.st_nlink > 1 and self._keep_links:
                self._hard_links[found.st_dev, found.st_ino] = member
        finally:
            os.close(file)

    def _add_directory(
        self, directory: int, name: bytes, member: bytes, found: os.stat_result
    ) -> None:
        opened = walking.open_directory(name, directory)
        try:
            self._put(tars.header(member, found, records=self._records(opened, member)))
        finally:
            os.close(opened)

    def _records(self, descriptor: int, member: bytes) -> dict[str, str]:
        if not self._keep_attributes:
            return {}
        try:
            return attributes.read(descriptor)
        except ValueError as error:
            name = pathnames.to_text(member)
            raise errors.BackupCreateFailedError(
                f"{name!r} cannot be kept: {error}",
                context={"file": name},
                suggestion="exclude it",
            ) from error

    def _admit(self, size: int, member: bytes) -> None:
        if self._limit is not None and self._size + size > self._limit:
            name = pathnames.to_text(member)
            raise errors.BackupCreateFailedError(
                "the directory, holes of its files included, is larger than "
                f"{self._limit:,} bytes: it has {name!r} of {size:,}",
                context={"limit": self._limit, "file": name, "size": size},
                suggestion="exclude what can be made again",
            )

    def _content(self, file: int, size: int) -> int:
        if size <= SMALL:
            data = os.pread(file, size, 0)
            self._put(data.ljust(size, b"\0"))
            return len(data)
        self._flush()
        return self._stream.send_file(file, 0, size, fill=True)

    def _put(self, data: bytes) -> None:
        self._frame += data
        if len(self._frame) >= FRAME:
            self._flush()

    def _flush(self) -> None:
        if self._frame:
            self._stream.send(Kind.DATA, bytes(self._frame))
            self._frame.clear()

    def _note(self, what: str, member: bytes) -> None:
        if len(self._named[what]) < MAX_NAMED:
            self._named[what].append(pathnames.to_text(member))
