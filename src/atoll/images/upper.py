"""The folder that an overlay writes to (``upper``) as one tar stream, and back.

A deletion is a character device 0:0 and a folder that hides the image's has the attribute
``trusted.overlay.opaque``, on disk and in the archive alike; so is ``redirect`` of a folder that was
renamed. Members lie below ``files/``; the last one is ``end``, without which an archive was cut. What
else of an archive is placed, and how, is `atoll.images.archive`.
"""

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from atoll.errors import FilesystemError
from atoll.host import overlay
from atoll.images.archive import Bounded, Limits, Readable, Tree, fill, keeps, refuse
from atoll.wire import attributes

_FILES, _END = "files", "end"
_OPAQUE, _REDIRECT = "trusted.overlay.opaque", "trusted.overlay.redirect"
_TYPES = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
    stat.S_IFCHR: tarfile.CHRTYPE,
}


def pack(folder: Path, target: IO[bytes]) -> None:
    """Write *folder*, which nobody changes meanwhile, to *target*. Sockets are left out.

    Raises:
        FilesystemError: folders are nested too deep, or a file has too many attributes.
        OSError: a file cannot be read, or *target* not be written.
    """
    with _Writer.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        seen: dict[tuple[int, int], str] = {}
        try:
            for path, names, parent in _folders(folder):
                if path == ".":
                    _add(tar, _FILES, ".", parent, seen)
                for name in sorted(names):
                    _add(tar, os.path.normpath(f"{_FILES}/{path}/{name}"), name, parent, seen)
        except RecursionError as error:
            raise FilesystemError("folders are nested too deep to be exported") from error
        except ValueError as error:
            raise FilesystemError(f"a file cannot be exported: {error}") from error
        tar.addfile(tarfile.TarInfo(_END))


class _Writer(tarfile.TarFile):
    """Forgets what it has written: how many files there are is for code inside to say."""

    members: list[tarfile.TarInfo]

    def addfile(self, tarinfo: tarfile.TarInfo, fileobj: Any = None) -> None:
        super().addfile(tarinfo, fileobj)
        self.members.clear()


def _folders(folder: Path) -> Iterator[tuple[str, list[str], int]]:
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path, folders, files, parent in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            folders.sort()
            yield path, folders + files, parent
    finally:
        os.close(top)


def _add(
    tar: tarfile.TarFile, path: str, name: str, parent: int, seen: dict[tuple[int, int], str]
) -> None:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    kind = _TYPES.get(stat.S_IFMT(found.st_mode))
    if kind is None or (kind == tarfile.CHRTYPE and found.st_rdev != 0):
        return
    member = tarfile.TarInfo(path)
    member.type, member.mode = kind, stat.S_IMODE(found.st_mode)
    own = os.geteuid() != 0  # its files are root's inside
    member.uid, member.gid = (0, 0) if own else (found.st_uid, found.st_gid)
    member.mtime = int(found.st_mtime)
    if kind == tarfile.SYMTYPE:
        member.linkname = os.readlink(name, dir_fd=parent)
    if kind != tarfile.REGTYPE:
        if kind == tarfile.DIRTYPE:
            member.pax_headers = _attributes(name, parent)
        tar.addfile(member)
    elif first := seen.get((found.st_dev, found.st_ino)):
        member.type, member.linkname = tarfile.LNKTYPE, first
        tar.addfile(member)
    else:
        if found.st_nlink > 1:
            seen[found.st_dev, found.st_ino] = path
        _add_file(tar, member, name, parent)


def _add_file(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, parent: int) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    with os.fdopen(descriptor, "rb") as file:
        member.pax_headers = _read_attributes(descriptor)
        member.size = os.fstat(descriptor).st_size
        tar.addfile(member, file)


def _attributes(name: str, parent: int) -> dict[str, str]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(name, flags, dir_fd=parent)
    try:
        return _read_attributes(folder)
    finally:
        os.close(folder)


def _read_attributes(descriptor: int) -> dict[str, str]:
    here = {overlay.attribute("opaque"): _OPAQUE, overlay.attribute("redirect"): _REDIRECT}
    found = attributes.read(descriptor, lambda name: _kept(name) or name in here)
    for name, everywhere in here.items():
        if (value := found.pop(attributes.record(name), None)) is not None:
            found[attributes.record(everywhere)] = value
    return found


def _kept(attribute: str) -> bool:
    """Whether a file keeps an extended attribute.

    Access lists name users by number, which without root are the host's.
    """
    return keeps(attribute) or (os.geteuid() == 0 and attributes.of_user(attribute))


def unpack(source: Readable, folder: Path, limits: Limits) -> None:
    """Place an uncompressed stream that `pack` wrote, or that claims so, in an empty *folder*.

    Raises:
        InvalidImageError: it is malformed, hostile, cut or over a limit.
        DiskQuotaExceededError: it does not fit.
    """
    fill(_Upper(folder, owners=os.geteuid() == 0), Bounded(source, limits.size), limits)


class _Upper(Tree):
    """A folder being filled, in which some members say what the image loses."""

    _ended = False

    def place(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if self._ended:
            raise refuse(member.name, "something follows its end")
        if member.name == _END:
            self._ended = True
            return
        member.name = _within(member.name)
        if member.islnk():
            member.linkname = _within(member.linkname)
        super().place(tar, member)

    def finish(self) -> None:
        if not self._ended:
            raise refuse(_END, "it was cut")
        super().finish()

    def _make_file(
        self, tar: tarfile.TarFile, member: tarfile.TarInfo, parent: int, name: str
    ) -> None:
        if member.ischr() and (member.devmajor, member.devminor) == (0, 0):
            os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)
        else:
            super()._make_file(tar, member, parent, name)

    def _set_attributes(self, descriptor: int, member: tarfile.TarInfo) -> None:
        if member.isdir():
            if member.pax_headers.get(attributes.record(_OPAQUE)) == "y":
                os.setxattr(descriptor, overlay.attribute("opaque"), b"y")
            if target := member.pax_headers.get(attributes.record(_REDIRECT)):
                if os.geteuid():
                    raise refuse(member.name, "it has a renamed folder, which takes root")
                os.setxattr(descriptor, _REDIRECT, _redirect(member.name, target))
        super()._set_attributes(descriptor, member)

    def _keeps(self, attribute: str) -> bool:
        return _kept(attribute) and (os.geteuid() == 0 or attribute.startswith("user."))


def _within(name: str) -> str:
    if name != _FILES and not name.startswith(f"{_FILES}/"):
        raise refuse(name, "it has a member of unknown meaning")
    return name.removeprefix(_FILES).lstrip("/")


def _redirect(name: str, target: str) -> bytes:
    """Return where in the image a renamed folder looks: a name, or a path from its root."""
    parts = target.removeprefix("/").split("/")
    if {"", ".", ".."} & set(parts) or "\0" in target or (len(parts) > 1 and target[0] != "/"):
        raise refuse(name, "it has a folder that leads elsewhere")
    return target.encode("utf-8", "surrogateescape")
