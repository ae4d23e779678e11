"""Paths: their form on the wire, and how the directory of a target is found and held.

A name is bytes to Linux and text to JSON. Bytes that are not valid UTF-8 become the characters
U+EF80..U+EFFF, and so do the bytes of real characters of that range, which makes the mapping
reversible (`to_text`, `to_bytes`).

A change is made relative to a descriptor of the directory, opened once: whoever swaps a parent
for a link meanwhile moves nothing and leaves no temporary file elsewhere. There is no root to
guard here: "/" is the sandbox's own, and the child has the rights of the sandbox's user.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from atoll import errors

MAX_LINKS: Final = 40
"""Final links followed one after the other; the kernel's own limit."""

_ESCAPE: Final = 0xEF00
_FIRST, _LAST = chr(_ESCAPE + 0x80), chr(_ESCAPE + 0xFF)


def to_text(name: bytes) -> str:
    """Return the form on the wire of a name or path; see `to_bytes`."""
    if name.isascii():
        return name.decode("ascii")
    text = name.decode("utf-8", "surrogateescape")
    return "".join(map(_escaped, text)) if _is_special(text) else text


def to_bytes(text: str) -> bytes:
    """Return the name or path that *text* stands for.

    Raises:
        ValidationFailedError: it holds a NUL character or a lone surrogate.
    """
    if "\0" in text:
        raise errors.ValidationFailedError("a path cannot hold a NUL character")
    try:
        if text.isascii() or not _is_special(text):
            return text.encode()
        return b"".join(map(_unescaped, text))
    except UnicodeEncodeError as error:
        raise errors.ValidationFailedError(f"not a path: {error.reason}") from error


def _is_special(text: str) -> bool:
    return any(_FIRST <= char <= _LAST or "\ud800" <= char <= "\udfff" for char in text)


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":
        return chr(_ESCAPE | ord(char) & 0xFF)
    if _FIRST <= char <= _LAST:
        return "".join(chr(_ESCAPE | byte) for byte in char.encode())
    return char


def _unescaped(char: str) -> bytes:
    return bytes([ord(char) & 0xFF]) if _FIRST <= char <= _LAST else char.encode()


def join(base: bytes, path: bytes) -> bytes:
    """Return *path* seen from the directory *base*, without empty and ``.`` components.

    ``..`` stays: what it means depends on links, so it is the kernel's to resolve.
    """
    whole = path if path.startswith(b"/") else base + b"/" + path
    parts = [part for part in whole.split(b"/") if part not in {b"", b"."}]
    return b"/" + b"/".join(parts)


@contextmanager
def blame(path: bytes) -> Iterator[None]:
    """Turn an OSError of the block into the typed error about *path*."""
    try:
        yield
    except errors.SandboxError:
        raise
    except OSError as error:
        raise errors.from_os_error(error, to_text(path)) from error


class Place(NamedTuple):
    """A name in a directory that is held open; the name itself may not exist."""

    directory: int  # opened with O_PATH
    name: bytes
    path: bytes  # for messages: as it was asked for, absolute

    def stat(self) -> os.stat_result | None:
        """Return what is at the place, links not followed, or None."""
        try:
            return self.require()
        except FileNotFoundError:
            return None

    def require(self) -> os.stat_result:
        """Return what is at the place, links not followed; raise FileNotFoundError if nothing."""
        return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)

    def open(self, flags: int, mode: int = 0o666) -> int:
        """Open the file at this place, never through a link, never waiting for a FIFO's peer."""
        quiet = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK
        return os.open(self.name, flags | quiet, mode, dir_fd=self.directory)

    def sync(self) -> None:
        """Make the names in the directory durable.

        A directory that may be written but not read cannot be opened for that; its names then
        become durable with the file system's next commit.
        """
        with suppress(PermissionError):
            sync_directory(b".", self.directory)


def sync_directory(path: bytes, at: int | None = None) -> None:
    """Make the names in a directory durable, where its file system knows how to."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EROFS, errno.EOPNOTSUPP}:
            raise
    finally:
        os.close(fd)


@contextmanager
def entry(path: bytes, *, make: bool = False) -> Iterator[Place]:
    """Hold the directory of *path*; a link at its end is the entry itself.

    Args:
        path: absolute.
        make: make missing parents.

    Raises:
        ValidationFailedError: the path ends in ``..`` or is the root.
        SandboxError: the directory cannot be opened; errors of the block are about *path* too.
    """
    parent, _, name = path.rpartition(b"/")
    if name in {b"", b".."}:
        raise errors.ValidationFailedError(
            f"not the name of a file or directory: {to_text(path)}", context={"path": to_text(path)}
        )
    with blame(path):
        directory = _open_directory(parent or b"/", None, make=make)
        try:
            yield Place(directory, name, path)
        finally:
            os.close(directory)


@contextmanager
def target(path: bytes, *, make: bool = False) -> Iterator[Place]:
    """Hold the directory of what *path* means once links at its end are followed."""
    with entry(path, make=make) as place:
        directory, name, is_directory = os.dup(place.directory), place.name, False
        try:
            for _ in range(MAX_LINKS):
                link = _read_link(directory, name)
                if link is None:
                    found = Place(directory, name, path)
                    if is_directory and not stat.S_ISDIR(found.require().st_mode):
                        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                    yield found
                    return
                is_directory = is_directory or link.endswith(b"/")
                parent, _, name = link.rstrip(b"/").rpartition(b"/")
                if link.startswith(b"/"):
                    parent = parent or b"/"
                if name in {b"", b".", b".."}:
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                following = _open_directory(parent or b".", directory, make=make)
                os.close(directory)
                directory = following
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        finally:
            os.close(directory)


def _read_link(directory: int, name: bytes) -> bytes | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def _open_directory(path: bytes, at: int | None, *, make: bool) -> int:
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(path, flags, dir_fd=at)
    except FileNotFoundError:
        if not make:
            raise
    make_directories(path, at)
    return os.open(path, flags, dir_fd=at)


def make_directories(path: bytes, at: int | None = None) -> None:
    """Make *path* and its missing parents, durably; what is there already is left alone."""
    parts = path.split(b"/")
    for end in range(1, len(parts) + 1):
        prefix = b"/".join(parts[:end])
        if not prefix:
            continue
        try:
            os.mkdir(prefix, dir_fd=at)
        except FileExistsError:
            continue
        with suppress(PermissionError):
            sync_directory(os.path.dirname(prefix) or b".", at)
