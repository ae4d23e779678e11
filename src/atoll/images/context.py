"""Taking a build context: a bounded copy of a directory in which nothing points outside.

A builder that is given somebody's directory follows what it finds there. So it gets a copy:
regular files, directories and links as links, read by descriptor without following any; device
nodes, sockets and FIFOs are refused by name. The copy also keeps a build from seeing half of a
change made meanwhile.
"""

import os
import stat
from pathlib import Path

from atoll.errors import FileTooLargeError, InvalidImageError, SandboxError, from_os_error
from atoll.images.archive import Bounded, Limits, Readable, Tree, fill
from atoll.images.ignore import Ignore

_MAX_ENTRIES = 1_000_000
_MAX_TEXT = 4 << 20
"""Largest Dockerfile or .dockerignore in bytes."""

_NOFOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = _NOFOLLOW | os.O_DIRECTORY


def take(context: Path, dockerfile: str, target: Path, max_bytes: int) -> str:
    """Copy *context* to the new directory *target*; return the text of its Dockerfile. Blocking.

    Args:
        context: directory to copy; a link itself is followed, links in it are not.
        dockerfile: path relative to the context.
        target: directory to make.
        max_bytes: most bytes of files.

    Raises:
        InvalidImageError: no such directory or Dockerfile, or something that cannot be copied.
        FileTooLargeError: the context is over the limit.
    """
    if not context.is_dir():
        raise InvalidImageError(
            f"{context} is no directory", suggestion="give a folder with a Dockerfile"
        )
    root = os.open(context, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        text = _text(root, dockerfile)
        if text is None:
            raise InvalidImageError(
                f"there is no file {dockerfile} in {context}", context={"path": dockerfile}
            )
        rules = _text(root, f"{dockerfile}.dockerignore") or _text(root, ".dockerignore") or ""
        _Copy(Ignore(rules.splitlines()), max_bytes).directory(root, target, "")
    except SandboxError:
        raise
    except OSError as error:
        raise from_os_error(error, str(context)) from error
    finally:
        os.close(root)
    return text


def receive(source: Readable, target: Path, max_bytes: int) -> None:
    """Unpack an uploaded context, an uncompressed tar stream, into the directory *target*.

    Blocking. All of it belongs to this process then, and links in it are links.

    Raises:
        InvalidImageError: the archive is malformed, hostile or over the limit.
    """
    limits = Limits(size=max_bytes, members=_MAX_ENTRIES)
    fill(Tree(target, owners=False), Bounded(source, limits.size), limits)


class _Copy:
    def __init__(self, ignore: Ignore, max_bytes: int) -> None:
        self._ignore = ignore
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries = 0

    def directory(self, source: int, target: Path, path: str) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for name in sorted(os.listdir(source)):
            below = f"{path}/{name}" if path else name
            info = os.stat(name, dir_fd=source, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode) and not self._ignore.prunes(below):
                self._enter(source, name, target / name, below)
            elif not stat.S_ISDIR(info.st_mode) and not self._ignore.ignores(below):
                self._count(0)
                target.mkdir(parents=True, exist_ok=True)
                self._entry(source, name, target / name, info)
        _copy_attributes(os.fstat(source), target)

    def _enter(self, source: int, name: str, target: Path, path: str) -> None:
        child = os.open(name, _DIRECTORY, dir_fd=source)
        try:
            self._count(0)
            self.directory(child, target, path)
        finally:
            os.close(child)
        if self._ignore.ignores(path) and not any(target.iterdir()):
            target.rmdir()

    def _entry(self, source: int, name: str, target: Path, info: os.stat_result) -> None:
        if stat.S_ISLNK(info.st_mode):
            target.symlink_to(os.readlink(name, dir_fd=source))
        elif stat.S_ISREG(info.st_mode):
            self._file(source, name, target)
        else:
            raise InvalidImageError(
                f"{name} in the build context is neither file, directory nor link",
                context={"path": name},
                suggestion="list it in .dockerignore",
            )

    def _file(self, source: int, name: str, target: Path) -> None:
        descriptor = os.open(name, _NOFOLLOW | os.O_NONBLOCK, dir_fd=source)
        with os.fdopen(descriptor, "rb") as file, target.open("xb") as copy:
            info = os.fstat(descriptor)
            self._count(info.st_size)
            # Not one byte more than was counted: the file may be growing without end.
            left = info.st_size
            while left and (chunk := file.read(min(left, 1 << 20))):
                copy.write(chunk)
                left -= len(chunk)
        _copy_attributes(info, target)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._entries += 1
        if self._bytes > self._max_bytes or self._entries > _MAX_ENTRIES:
            raise FileTooLargeError(
                "the build context is too large",
                context={"limit": self._max_bytes, "entries": _MAX_ENTRIES},
                suggestion="list what the build does not need in .dockerignore",
            )


def _copy_attributes(info: os.stat_result, target: Path) -> None:
    """Mode and time: builders compare both when they look for a cached step."""
    target.chmod(stat.S_IMODE(info.st_mode) & 0o777)
    os.utime(target, ns=(info.st_mtime_ns, info.st_mtime_ns))


def _text(root: int, path: str) -> str | None:
    """Read a small text file below *root* without following links; None: there is none."""
    opened = [os.dup(root)]
    try:
        *parents, name = path.split("/")
        if ".." in parents:
            return None
        for part in parents:
            opened.append(os.open(part or ".", _DIRECTORY, dir_fd=opened[-1]))
        opened.append(os.open(name, _NOFOLLOW | os.O_NONBLOCK, dir_fd=opened[-1]))
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            return None
        data = os.read(opened[-1], _MAX_TEXT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)
    if len(data) > _MAX_TEXT:
        raise FileTooLargeError(f"{path} is over {_MAX_TEXT} bytes", context={"path": path})
    return data.decode("utf-8", "replace")
