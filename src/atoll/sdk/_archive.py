"""Folders of this host as a tar stream, and back. Blocking; the SDK calls it in threads.

What a sandbox sends is hostile: it is unpacked by `atoll.sdk._unpack` into a folder beside the
target, which takes its place when all of it arrived.
"""

import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Self

from atoll.errors import FileExistsError, ValidationFailedError
from atoll.sdk import _arguments
from atoll.sdk._unpack import unpack

CHUNK = 1 << 20

Progress = Callable[[int], object]
"""Called with the number of bytes transferred so far."""


def local_path(field: str, given: str | os.PathLike[str]) -> Path:
    """Return a path of this host.

    Raises:
        ValidationFailedError: it is none.
    """
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise _arguments.wrong(field, "a path", given)
    if "\0" in os.fspath(given):
        raise ValidationFailedError(f"{field} has a NUL byte", context={"field": field})
    return Path(given)


def file_mode(path: Path) -> int | None:
    """Return the permissions of a file, None for a folder."""
    status = path.stat()
    return None if stat.S_ISDIR(status.st_mode) else status.st_mode & 0o777


def read(path: Path) -> Iterator[bytes]:
    """Yield the content of a file."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def counted(chunks: Iterator[bytes], progress: Progress | None) -> Iterator[bytes]:
    """Yield *chunks* and tell *progress* how many bytes there were."""
    count = 0
    for chunk in chunks:
        yield chunk
        count += len(chunk)
        if progress is not None:
            progress(count)


def pack(folder: Path) -> Iterator[bytes]:
    """Yield *folder* as a tar archive with names relative to it; sockets and devices are left out.

    Owners are not sent: files belong to the sandbox's user. A file that changes its size while it
    is read is cut or filled up with zeros, because its header was sent before.
    """
    for path in _walk(folder):
        info = _member(path, folder)
        if info is None:
            continue
        if not info.isreg():
            yield _header(info)
            continue
        with path.open("rb") as file:
            info.size = os.fstat(file.fileno()).st_size
            yield _header(info)
            yield from _content(file, info.size)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield everything below *folder*, sorted, without following links."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _member(path: Path, folder: Path) -> tarfile.TarInfo | None:
    status = path.lstat()
    info = tarfile.TarInfo(str(path.relative_to(folder)))
    info.mode, info.mtime = status.st_mode & 0o7777, status.st_mtime
    if path.is_symlink():
        info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif path.is_dir():
        info.type = tarfile.DIRTYPE
    elif not path.is_file():
        return None
    return info


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(file: IO[bytes], size: int) -> Iterator[bytes]:
    left = size
    while left and (chunk := file.read(min(left, CHUNK))):
        yield chunk
        left -= len(chunk)
    padding = left + -size % tarfile.BLOCKSIZE
    for start in range(0, padding, CHUNK):
        yield bytes(min(CHUNK, padding - start))


class Incoming:
    """A transfer to this host that takes its place only when it is complete.

    Use it as a context manager: what was not completed is removed.
    """

    def __init__(self, target: Path) -> None:
        if target.is_dir() and any(target.iterdir()):
            raise FileExistsError(
                f"{target} exists and is not empty",
                context={"path": str(target)},
                suggestion="choose a path that does not exist yet",
            )
        self._target = target.absolute()
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._work = Path(tempfile.mkdtemp(prefix=".atoll-", dir=self._target.parent))
        self._file = (self._work / "body").open("w+b")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        shutil.rmtree(self._work, ignore_errors=True)

    def write(self, chunk: bytes) -> None:
        """Take a piece of the body."""
        self._file.write(chunk)

    def finish_file(self, mode: int) -> None:
        """Let the body be the target, with the permissions *mode*."""
        self._file.flush()
        os.fchmod(self._file.fileno(), mode & 0o777)
        Path(self._file.name).replace(self._target)

    def finish_folder(self) -> None:
        """Unpack the body, a tar archive, and let it be the target.

        Raises:
            SecurityError: a member would be written outside of the target.
        """
        self._file.seek(0)
        folder = self._work / "folder"
        folder.mkdir()
        unpack(self._file, folder)
        if self._target.is_dir():
            self._target.rmdir()
        folder.replace(self._target)
