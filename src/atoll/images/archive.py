"""Placing the members of a hostile tar archive in a directory.

Every member is placed by walking from the root of the target, one component at a time, without
following links: no name, link or order of members reaches outside. Refused: ``..``, hard links to
anything but a regular file of the same archive, sparse members, oversized headers, more data or
members than the limits. Left out: device nodes (a sandbox has its own /dev, and a 0:0 device would
be a whiteout nobody asked for) and extended attributes other than ``security.capability`` and
``user.*`` (``trusted.overlay.*`` redirects lookups).

The standard library's own filter for this is missing in Debian 12's Python 3.11.2.
"""

import errno
import hashlib
import io
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec

from atoll.errors import InvalidImageError, SandboxError, from_os_error
from atoll.host import trees
from atoll.wire import attributes

_MAX_HEADER = 1 << 20
"""Bytes of the extended headers of one member, and of all that are for every member: tarfile reads
them whole into memory."""

_MAX_REMEMBERED = 256 << 20
"""Bytes that folders take until the end, when they get their modes: 250,000 of the usual depth."""

_MAX_NAME = 4_096
"""Letters of a member's name, as many as a path has bytes: a longer one is folders upon folders,
each of which takes time for each member in them."""

_EXTENDED = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    }
)
_FOLDER, _COMPONENT = 450, 75  # bytes of memory, measured
_LATEST = 1 << 33
"""Latest time of a file in seconds; ext4 with small inodes ends in 2446."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one archive may have, or several of them together."""

    size: int = 20_000_000_000  # bytes of the unpacked archive
    members: int = 2_000_000

    def less(self, size: int, members: int = 0) -> "Limits":
        """Return what is left for the next archive."""
        return Limits(size=max(self.size - size, 0), members=max(self.members - members, 0))


class Readable(Protocol):
    """The one method of a stream that is needed here."""

    def read(self, size: int, /) -> bytes:
        """Return up to *size* bytes; empty at the end."""


def fill(tree: "Tree", stream: "Bounded", limits: Limits) -> int:
    """Place all members of the uncompressed tar *stream* in *tree*, and close it.

    Returns:
        How many they are.

    Raises:
        InvalidImageError: the archive is malformed, hostile or over a limit.
    """
    number = 0
    with typed_errors():
        try:
            with _Archive.open(fileobj=stream, mode="r|", tarinfo=_Member, errorlevel=2) as tar:
                while (member := tar.next()) is not None:
                    tar.members.clear()  # or it keeps all of them
                    if (number := number + 1) > limits.members:
                        raise refuse(member.name, f"it has over {limits.members} members")
                    if member.size > limits.size:  # tarfile goes on skipping behind the end
                        raise refuse(
                            member.name, f"it has a member of over {limits.size} bytes unpacked"
                        )
                    tree.place(tar, member)
            tree.finish()
            stream.drain()
            return number
        finally:
            tree.close()


@contextmanager
def typed_errors() -> Iterator[None]:
    """Turn what reading a bad archive raises into InvalidImageError."""
    try:
        yield
    except SandboxError:
        raise
    # Thousands of headers in a row make tarfile recurse once for each.
    except (
        tarfile.TarError, zlib.error, EOFError, ValueError, OverflowError, RecursionError,
    ) as error:  # fmt: skip
        raise InvalidImageError(f"this is not a valid archive: {error}") from error
    except OSError as error:
        raise _from_os_error(error) from error


class Bounded(io.RawIOBase):
    """Passes reads on, counts and hashes them, and stops at the limit."""

    def __init__(self, source: Readable, limit: int) -> None:
        super().__init__()
        self._source = source
        self._limit = limit
        self._digest = hashlib.sha256()
        self.count = 0

    def read(self, size: int = -1, /) -> bytes:
        """Return up to *size* bytes."""
        data = self._source.read(size)
        self.count += len(data)
        if self.count > self._limit:
            raise InvalidImageError(
                f"the archive is over {self._limit} bytes unpacked",
                context={"limit": self._limit},
                suggestion="raise images.max_image_mb if you trust what it comes from",
            )
        self._digest.update(data)
        return data

    def drain(self) -> None:
        """Read to the end."""
        while self.read(1 << 20):
            pass

    def hexdigest(self) -> str:
        """Return the SHA-256 of what was read."""
        return self._digest.hexdigest()


class _Archive(tarfile.TarFile):
    """Counts what it has to keep in memory."""

    members: list[tarfile.TarInfo]
    for_one = 0  # bytes of headers of the next member
    for_all = 0  # of headers for all members that follow


class _Member(tarfile.TarInfo):
    """A member whose headers are bounded and that is never sparse.

    tarfile reads extended headers and sparse maps whole into memory, of any size the archive
    claims; these hooks run before it does.
    """

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if isinstance(tar, _Archive):
            self._count_headers(tar)
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a sparse member")
        member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return member

    def _count_headers(self, tar: _Archive) -> None:
        if self.type not in _EXTENDED:
            tar.for_one = 0
            return
        tar.for_one += self.size
        tar.for_all += self.size if self.type == tarfile.XGLTYPE else 0
        if max(tar.for_one, tar.for_all) > _MAX_HEADER:
            raise tarfile.ReadError(f"headers of more than {_MAX_HEADER} bytes")

    def _refuse_sparse(self, *_arguments: object) -> None:
        raise tarfile.ReadError("a sparse member")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


class Tree:
    """A directory being filled.

    Args:
        root: the directory.
        owners: whether members keep owners and attributes; else all belongs to this process.
    """

    def __init__(self, root: Path, *, owners: bool = True) -> None:
        self._owners = owners
        self._root = os.open(root, _DIRECTORY)
        self._directories: dict[tuple[str, ...], tarfile.TarInfo] = {}
        self._remembered = 0

    def close(self) -> None:
        """Let go of the directory, and of what is remembered: an error may hold this for long."""
        self._directories.clear()
        os.close(self._root)

    def place(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Create one member."""
        parts = _parts(member.name)
        if not parts:
            if member.isdir():
                self._remember((), member)
            return
        *parents, name = parts
        with self._directory(tuple(parents), create=True) as parent:
            if self._place_special(parent, parents, name):
                return
            if member.isdir():
                self._make_directory(parent, tuple(parts))
                self._remember(tuple(parts), member)
            else:
                self._forget(tuple(parts))
                _remove(parent, name)
                self._make_file(tar, member, parent, name)

    def _remember(self, parts: tuple[str, ...], member: tarfile.TarInfo) -> None:
        """Keep of a folder what `finish` needs, within bounds."""
        headers = member.pax_headers.items()
        member.pax_headers = {
            key: text for key, text in headers if key.startswith(attributes.PREFIX)
        }
        kept = sum(len(key) + len(text) for key, text in member.pax_headers.items())
        self._remembered += _FOLDER + _COMPONENT * len(parts) + len(member.name) + kept
        if self._remembered > _MAX_REMEMBERED:
            raise refuse(member.name, "its folders take too much memory")
        self._directories[parts] = member

    def _place_special(self, parent: int, parents: list[str], name: str) -> bool:
        """Place a name that means something else in this kind of archive; True: it was one."""
        del parent, parents, name
        return False

    def finish(self) -> None:
        """Set what writing into directories would have changed: their modes, owners and times."""
        for parts, member in sorted(self._directories.items(), reverse=True):
            with self._directory(parts, create=False) as directory:
                self._set_attributes(directory, member)

    @contextmanager
    def _directory(self, parts: tuple[str, ...], *, create: bool) -> Iterator[int]:
        current = os.dup(self._root)
        try:
            for part in parts:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=current)
                child = os.open(part, _DIRECTORY, dir_fd=current)
                os.close(current)
                current = child
            yield current
        finally:
            os.close(current)

    def _make_directory(self, parent: int, parts: tuple[str, ...]) -> None:
        name = parts[-1]
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            if not is_directory(parent, name):
                os.unlink(name, dir_fd=parent)
                os.mkdir(name, 0o755, dir_fd=parent)

    def _make_file(
        self, tar: tarfile.TarFile, member: tarfile.TarInfo, parent: int, name: str
    ) -> None:
        if member.isreg():
            self._write(tar, member, parent, name)
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
            self._set_owner(member, name, parent)
            _set_time(member, name, parent)
        elif member.islnk():
            self._link(member, parent, name)
        elif member.isfifo():
            os.mkfifo(name, 0o600, dir_fd=parent)
            self._set_owner(member, name, parent)
            os.chmod(name, member.mode & 0o7777, dir_fd=parent)
        elif not (member.ischr() or member.isblk()):
            raise refuse(member.name, "it has a member of unknown type")

    def _link(self, member: tarfile.TarInfo, parent: int, name: str) -> None:
        *parents, target = _parts(member.linkname) or [""]
        try:
            with self._directory(tuple(parents), create=False) as folder:
                if not stat.S_ISREG(os.stat(target, dir_fd=folder, follow_symlinks=False).st_mode):
                    raise refuse(member.name, "it links to something that is no regular file")
                os.link(target, name, src_dir_fd=folder, dst_dir_fd=parent, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise refuse(member.name, "it links to a file that is not in the archive") from error

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, parent: int, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        content = tar.extractfile(member)
        descriptor = os.open(name, flags, 0o600, dir_fd=parent)
        with os.fdopen(descriptor, "wb") as file:
            if content is not None:
                shutil.copyfileobj(content, file, 1 << 20)
            file.flush()
            self._set_attributes(descriptor, member)

    def _set_attributes(self, descriptor: int, member: tarfile.TarInfo) -> None:
        """Owner first: it clears set-user-id bits and capabilities."""
        if self._owners:
            os.fchown(descriptor, member.uid, member.gid)
        os.fchmod(descriptor, member.mode & 0o7777)
        for name, value in attributes.told(member.pax_headers):
            if self._keeps(name):
                os.setxattr(descriptor, name, value)
        os.utime(descriptor, ns=_times(member))

    def _keeps(self, attribute: str) -> bool:
        """Whether members keep an extended attribute."""
        return self._owners and keeps(attribute)

    def _set_owner(self, member: tarfile.TarInfo, name: str, parent: int) -> None:
        if self._owners:
            os.chown(name, member.uid, member.gid, dir_fd=parent, follow_symlinks=False)

    def _forget(self, parts: tuple[str, ...]) -> None:
        """Drop what is remembered of directories that a file takes the place of."""
        if parts not in self._directories:
            return
        for known in [k for k in self._directories if k[: len(parts)] == parts]:
            del self._directories[known]


def keeps(attribute: str) -> bool:
    """Whether an extended attribute is content, of the image's makers or users."""
    return attribute == "security.capability" or (
        attribute.startswith("user.") and attributes.of_user(attribute)
    )


def _set_time(member: tarfile.TarInfo, name: str, parent: int) -> None:
    os.utime(name, ns=_times(member), dir_fd=parent, follow_symlinks=False)


def _times(member: tarfile.TarInfo) -> tuple[int, int]:
    modified = int(min(max(member.mtime, 0), _LATEST) * 1_000_000_000)
    return modified, modified


def _remove(parent: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        trees.remove_at(parent, name)


def _parts(name: str) -> list[str]:
    """Return the components of a member's name; a leading slash means the target's root."""
    if len(name) > _MAX_NAME:
        raise refuse(name, f"it has a name of over {_MAX_NAME} letters")
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts or "\0" in name:
        raise refuse(name, "it has a name that leads outside")
    return parts


def is_directory(parent: int, name: str) -> bool:
    """Whether *name* in the directory *parent* is a directory, not a link to one."""
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def refuse(member: str, reason: str) -> InvalidImageError:
    """Return the error for a member that may not be there."""
    return InvalidImageError(
        f"the archive is refused: {reason} ({member[:200]!r})", context={"member": member[:200]}
    )


def _from_os_error(error: OSError) -> SandboxError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPERM}:
        return from_os_error(error, "the image store")
    return InvalidImageError(
        f"the archive cannot be unpacked: {error.strerror or error}",
        context={"errno": errno.errorcode.get(error.errno or 0, "unknown")},
        suggestion="it has paths that contradict each other",
    )
