"""Unpacks a folder that a sandbox sent. The archive is hostile; the target is ours and empty.

Not the standard library's ``data`` filter: Debian 12's Python lacks it, and it trusted links more
than once. Here nothing is ever written through a link, because links are made last, and none
stays whose end, with all other links in place, lies outside.
"""

import errno
import os
import stat
import tarfile
from pathlib import Path
from typing import IO

from atoll.errors import SecurityError

CHUNK = 1 << 20

_CONTRADICTIONS = {
    errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ENAMETOOLONG, errno.EINVAL,
    errno.ELOOP, errno.EMLINK,
}  # fmt: skip
"""What the kernel says of names that cannot be; anything else is about the disk of the target."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def unpack(source: IO[bytes], target: Path) -> None:
    """Unpack the uncompressed tar archive *source* into the empty directory *target*.

    Owners are not taken over, set-id bits and others' right to write neither.

    Raises:
        SecurityError: a member is neither file, folder nor link, or would reach outside.
    """
    links: list[tuple[Path, str]] = []
    target = target.resolve()
    try:
        with tarfile.open(fileobj=source, mode="r:") as archive:
            for member in archive:
                if member.issparse():  # a few bytes could stand for all of the disk
                    raise _refused(f"{member.name!r} is sparse")
                path = target / _inside(member.name)
                if member.issym():
                    links.append((path, member.linkname))
                else:
                    _place(archive, member, path, target)
        _link(links, target)
    except (tarfile.TarError, ValueError, OverflowError, RecursionError, EOFError) as error:
        raise SecurityError(f"the sandbox sent a broken archive: {error}") from error
    except OSError as error:
        if error.errno not in _CONTRADICTIONS:
            raise
        raise _refused(f"its members contradict each other ({error.strerror})") from error


def _inside(name: str) -> Path:
    """Return *name* relative to the target: an absolute one loses its slash, ``..`` is refused."""
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts or "\0" in name:
        raise _refused(f"{name!r} lies outside")
    return Path(*parts)


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, target: Path) -> None:
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.islnk():
        earlier = target / _inside(member.linkname)
        if not stat.S_ISREG(earlier.lstat().st_mode):
            raise _refused(f"{member.name!r} is a link to no file")
        os.link(earlier, path, follow_symlinks=False)
    elif member.isreg():
        _write(archive, member, path)
    else:
        raise _refused(f"{member.name!r} is a device or a pipe")


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(member)
    with os.fdopen(os.open(path, _NEW, 0o600), "wb") as file:
        while content and (chunk := content.read(CHUNK)):
            file.write(chunk)
        os.fchmod(file.fileno(), (member.mode & 0o755) | 0o600)
    os.utime(path, (member.mtime, member.mtime))


def _link(links: list[tuple[Path, str]], root: Path) -> None:
    for path, end in links:
        path.parent.mkdir(parents=True, exist_ok=True)
        if Path(end).is_absolute() or path.parent.resolve() != root / path.parent.relative_to(root):
            raise _refused(f"the link {path.name!r} leads outside")
        path.symlink_to(end)
    for path, _ in links:  # again, since a later link may have turned an earlier one
        try:
            inside = path.resolve().is_relative_to(root)
        except (OSError, RuntimeError):  # Python 3.11 and 3.13 tell of a loop in different ways
            inside = False
        if not inside:
            raise _refused(f"the link {path.name!r} leads outside")


def _refused(reason: str) -> SecurityError:
    return SecurityError(f"the sandbox sent an archive that is not safe to unpack: {reason}")
