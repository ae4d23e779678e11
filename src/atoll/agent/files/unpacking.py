"""Unpacking a tar stream into a directory.

All members go to a directory of our own first, beneath which every path is walked component by
component and no link is ever followed. Only when the archive is complete, and nothing in it
collides with what is there, are its entries renamed into the target: whatever goes wrong before
leaves the target as it was.

Refused are members with absolute names or ``..``, devices, FIFOs and sparse members, links that
lead out of the target (unless the caller wants those: nothing here follows them), and a target that
is a link itself. Set-id and sticky bits are dropped; what is made belongs to the user.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from atoll import errors
from atoll.agent import kernel
from atoll.agent.files import deleting, merging, pathnames, spools, tars, walking
from atoll.agent.files.pathnames import Place, to_text
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Stream
from atoll.wire import attributes


def upload(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Unpack the body into the directory ``path``, which is made if it is missing."""
    path = fields.path()
    with pathnames.entry(path, make=True) as place:
        existing = place.stat()
        refuse_no_directory(place, existing)
        with staged(place, inside=existing is not None) as stage:
            unpacker = Unpacker(stage.directory, outside_links=fields.flag("outside_links"))
            try:
                unpacker.unpack(stream)
                if existing is None:
                    stage.become(place)
                else:
                    merging.merge(stream, stage.directory, stage.target, path)
                    merging.sync(stage.target)
            finally:
                unpacker.close()
    return {"path": to_text(path), "files": unpacker.files, "size": unpacker.size}


def refuse_no_directory(place: Place, existing: os.stat_result | None) -> None:
    """Refuse a target that is there and is no directory; a link is none."""
    if existing is None or stat.S_ISDIR(existing.st_mode):
        return
    if stat.S_ISLNK(existing.st_mode):
        raise errors.SecurityError(
            f"the target is a link: {to_text(place.path)}",
            context={"path": to_text(place.path)},
            suggestion="name the directory itself",
        )
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


MAX_REMEMBERED = 1 << 24
"""Bytes of attributes of directories, which are set at the end."""

_ZEROS = bytes(1 << 18)
_NO_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS})
"""Answers of kernels (gVisor's) and file systems that cannot swap two names."""


class Stage:
    """Our own directory for the members, in or beside the target."""

    def __init__(self, parent: int, name: bytes, target: int) -> None:
        self._parent, self.name, self.target = parent, name, target
        os.mkdir(name, 0o700, dir_fd=parent)
        self.directory = walking.open_directory(name, parent)

    def plain(self) -> None:
        """Drop the access list that it has of its parent, and that all in it would have."""
        for name in (attributes.DEFAULT, attributes.ACCESS):
            with suppress(OSError):
                os.removexattr(self.directory, name)

    def become(self, place: Place) -> None:
        """Give the directory the name of the target, which must not exist."""
        os.fchmod(self.directory, 0o755)
        merging.sync(self.directory)
        os.rename(self.name, place.name, src_dir_fd=self._parent, dst_dir_fd=place.directory)
        place.sync()

    def take_over(self, place: Place, existing: os.stat_result) -> None:
        """Swap places with the directory at *place*: `discard` deletes that one."""
        with suppress(PermissionError):
            os.fchown(self.directory, existing.st_uid, existing.st_gid)
        self._adopt(place)
        os.fchmod(self.directory, stat.S_IMODE(existing.st_mode))
        merging.sync(self.directory)
        try:
            kernel.exchange(self._parent, self.name, place.name)
        except OSError as error:
            if error.errno not in _NO_EXCHANGE:
                raise
            self._replace(place)
        place.sync()

    def _adopt(self, place: Place) -> None:
        with suppress(PermissionError):
            old = walking.open_directory(place.name, place.directory)
            try:
                spools.copy_attributes(old, self.directory)
            finally:
                os.close(old)

    def _replace(self, place: Place) -> None:
        """Swap places in two steps: between them nothing has the name.

        Who dies there leaves the directory that was there beside it, under a name that no clean-up
        knows.
        """
        aside = self.name.removesuffix(spools.TEMPORARY_END) + b".old"
        here = {"src_dir_fd": self._parent, "dst_dir_fd": self._parent}
        os.rename(place.name, aside, **here)
        try:
            os.rename(self.name, place.name, **here)
        except BaseException:
            os.rename(aside, place.name, **here)
            raise
        self.name = aside

    def discard(self) -> None:
        """Delete what is left of it."""
        os.close(self.directory)
        with suppress(FileNotFoundError):
            deleting.delete_tree(self._parent, self.name, one_device=True)


@contextmanager
def staged(place: Place, *, inside: bool) -> Iterator[Stage]:
    """Have a directory of our own, in the target or beside it; what is left of it goes."""
    target = walking.open_directory(place.name, place.directory) if inside else -1
    try:
        parent = target if inside else place.directory
        stage = Stage(parent, spools.temporary_name(), target)
        try:
            yield stage
        finally:
            with suppress(OSError):
                stage.discard()
    finally:
        if inside:
            os.close(target)


class _Body:
    """The body as the file object `tarfile` reads from."""

    def __init__(self, chunks: Iterator[memoryview]) -> None:
        self._chunks = chunks

    def read(self, _size: int) -> bytes:
        """Return the next bytes, as many as there are; the reader collects what it needs."""
        return bytes(next(self._chunks, b""))


class Unpacker:
    """Writes members beneath one directory; long runs of zeros become holes.

    Args:
        top: the directory.
        outside_links: links may lead out of it.
        keep_owner: members belong to whom the archive says, as far as this user may give them away,
            and have the extended attributes that it says, as far as the file system takes them.
    """

    def __init__(self, top: int, *, outside_links: bool, keep_owner: bool = False) -> None:
        self._top = top
        self._outside_links = outside_links
        self._keep_owner = keep_owner
        self._here, self._here_name = os.dup(top), b""
        self._directories: dict[bytes, Any] = {}
        self.files = self.size = self._remembered = 0

    def close(self) -> None:
        """Release the directory held open."""
        os.close(self._here)

    def unpack(self, stream: Stream) -> None:
        """Read the whole body.

        Raises:
            SecurityError: a member is refused.
            ValidationFailedError: this is no tar archive, or one that is cut off.
        """
        tarfile = tars.load()
        body = stream.body()
        try:
            with tarfile.open(
                fileobj=_Body(body), mode="r|", encoding="utf-8", errors="surrogateescape"
            ) as archive:
                while (member := archive.next()) is not None:
                    archive.members.clear()  # or it keeps all of them
                    self._place(archive, member)
            for _ in body:
                pass
            self._finish_directories()
        except errors.SandboxError:
            raise
        # Numbers in extended headers may be anything, and thousands of headers in a row recurse.
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            raise errors.ValidationFailedError(f"not a tar archive: {error}") from error

    def _place(self, archive: Any, member: Any) -> None:
        name = check_name(os.fsencode(member.name))
        if not name and not member.isdir():
            raise _refusal(member.name, "it has no name")
        if member.issparse():  # a few bytes could stand for exabytes of zeros to go through
            raise _refusal(member.name, "it is sparse")
        self.files += 1
        if member.isdir():
            self._enter(name)
            self._remember(name, member)
            return
        parent, _, leaf = name.rpartition(b"/")
        directory = self._enter(parent)
        with suppress(FileNotFoundError):  # a later member of the same name replaces it
            os.unlink(leaf, dir_fd=directory)
        if member.isreg():
            self._write(directory, leaf, member, archive.extractfile(member))
        elif member.issym():
            self._link(directory, leaf, parent, member)
        elif member.islnk():
            self._hard_link(directory, leaf, member)
        else:
            raise _refusal(member.name, "it is a device, FIFO or of an unknown type")

    def _enter(self, name: bytes) -> int:
        """Return a descriptor of the directory *name*, made as needed; the last one is kept."""
        if name != self._here_name:
            here = self._walk(name, make=True)
            os.close(self._here)
            self._here, self._here_name = here, name
        return self._here

    def _walk(self, name: bytes, *, make: bool) -> int:
        here = os.dup(self._top)
        for part in name.split(b"/") if name else ():
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=here)
            try:
                below = walking.open_directory(part, here)
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                    raise _refusal(os.fsdecode(name), "it is below a link or file") from error
                raise
            finally:
                os.close(here)
            here = below
        return here

    def _write(self, directory: int, leaf: bytes, member: Any, content: Any) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(leaf, flags, 0o600, dir_fd=directory)
        try:
            while data := content.read(len(_ZEROS)):
                self.size += len(data)
                if data == _ZEROS:
                    os.lseek(file, len(data), os.SEEK_CUR)
                    continue
                view = memoryview(data)
                while view:
                    view = view[os.write(file, view) :]
            os.truncate(file, member.size)
            os.fchmod(file, self._own(file, member))
            os.utime(file, (member.mtime, member.mtime))
        finally:
            os.close(file)

    def _link(self, directory: int, leaf: bytes, parent: bytes, member: Any) -> None:
        target = os.fsencode(member.linkname)
        if not self._outside_links and not stays_inside(parent, target):
            raise _refusal(member.name, f"it links to {member.linkname}")
        os.symlink(target, leaf, dir_fd=directory)
        if self._keep_owner:
            with suppress(PermissionError):
                os.chown(leaf, member.uid, member.gid, dir_fd=directory, follow_symlinks=False)
        os.utime(leaf, (member.mtime, member.mtime), dir_fd=directory, follow_symlinks=False)

    def _hard_link(self, directory: int, leaf: bytes, member: Any) -> None:
        parent, _, first = check_name(os.fsencode(member.linkname)).rpartition(b"/")
        source = self._walk(parent, make=False)
        try:
            os.link(first, leaf, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError as error:
            raise _refusal(member.name, f"it links to {member.linkname}, no member") from error
        finally:
            os.close(source)

    def _finish_directories(self) -> None:
        """Set modes and times once nothing more is made in them, the deepest first."""
        for name in sorted(self._directories, reverse=True):
            member = self._directories[name]
            directory = self._walk(name, make=False)
            try:
                if name:
                    os.fchmod(directory, self._own(directory, member))
                    os.utime(directory, (member.mtime, member.mtime))
            finally:
                os.close(directory)

    def _remember(self, name: bytes, member: Any) -> None:
        """Keep of a directory what `_finish_directories` needs, within bounds."""
        found = member.pax_headers if self._keep_owner else {}
        member.pax_headers = {
            key: text for key, text in found.items() if key.startswith(attributes.PREFIX)
        }
        self._remembered += sum(map(len, member.pax_headers.values()))
        if self._remembered > MAX_REMEMBERED:
            raise _refusal(member.name, "attributes of directories take too much memory")
        self._directories[name] = member

    def _own(self, file: int, member: Any) -> int:
        """Give a file its owner and attributes, and return its mode: no attribute may follow it."""
        mode: int = member.mode & 0o777
        if not self._keep_owner:
            return mode
        with suppress(PermissionError):
            os.fchown(file, member.uid, member.gid)
        try:
            return attributes.put_back(file, member.pax_headers, mode)
        except ValueError as error:
            raise _refusal(member.name, str(error)) from error


def check_name(name: bytes) -> bytes:
    """Return a member's name without empty and ``.`` components.

    Raises:
        SecurityError: it is absolute or has a ``..``.
    """
    parts = [part for part in name.split(b"/") if part not in {b"", b"."}]
    if name.startswith(b"/") or b".." in parts:
        raise _refusal(os.fsdecode(name), "its name leads out of the target")
    return b"/".join(parts)


def stays_inside(parent: bytes, target: bytes) -> bool:
    """Tell whether a link in the directory *parent* to *target* stays below the top, by name."""
    if target.startswith(b"/"):
        return False
    depth = len([part for part in parent.split(b"/") if part])
    for part in target.split(b"/"):
        depth += (part not in {b"", b"."}) - 2 * (part == b"..")
        if depth < 0:
            return False
    return True


def _refusal(member: str, reason: str) -> errors.SecurityError:
    name = to_text(os.fsencode(member))
    return errors.SecurityError(
        f"the archive's member {name!r} is refused: {reason}", context={"member": name}
    )
