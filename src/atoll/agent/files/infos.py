"""What is told about a file: the `FileInfo` and timestamps of the wire.

Names of owners come from the sandbox's own /etc/passwd and /etc/group, read as text; an id
without a name is told as its number.
"""

import os
import stat
import time
from typing import Any, Final

from atoll.agent import users
from atoll.agent.files.pathnames import to_text

_YEAR_1: Final = -62_135_596_800
_YEAR_9999: Final = 253_402_300_799


def timestamp(nanoseconds: int) -> str:
    """Return a time of the file system as ISO 8601 in UTC, to the microsecond.

    A file may claim any time at all; one that ISO 8601 cannot write becomes the nearest it can.
    """
    seconds = min(max(nanoseconds // 1_000_000_000, _YEAR_1), _YEAR_9999)
    t = time.gmtime(seconds)
    micros = nanoseconds // 1000 % 1_000_000
    return (
        f"{t.tm_year:04}-{t.tm_mon:02}-{t.tm_mday:02}"
        f"T{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}.{micros:06}Z"
    )


def now() -> str:
    """Return the present time as `timestamp` writes it."""
    return timestamp(time.time_ns())


def etag(found: os.stat_result) -> str:
    """Return a validator that changes with the content: inode, size and the kernel's ctime."""
    return f'"{found.st_ino:x}-{found.st_size:x}-{found.st_ctime_ns:x}"'


def type_of(mode: int) -> str:
    """Return the type of a file in the words of the wire."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


class Describer:
    """Makes `FileInfo`; reads the names of owners when the first is asked for."""

    def __init__(self) -> None:
        self._users: dict[int, str] | None = None
        self._groups: dict[int, str] = {}

    def describe(
        self,
        path: bytes,
        found: os.stat_result,
        *,
        relative: bytes = b"",
        link: bytes | None = None,
    ) -> dict[str, Any]:
        """Return the `FileInfo` of what *found* was seen at *path*."""
        if self._users is None:
            self._users = _names(users.read_text("/etc/passwd"))
            self._groups = _names(users.read_text("/etc/group"))
        return {
            "name": to_text(path.rpartition(b"/")[2] or b"/"),
            "absolutePath": to_text(path),
            "relativePath": to_text(relative),
            "type": type_of(found.st_mode),
            "size": found.st_size,
            "modifiedAt": timestamp(found.st_mtime_ns),
            "mode": stat.S_IMODE(found.st_mode),
            "permissions": stat.filemode(found.st_mode)[1:],
            "owner": self._users.get(found.st_uid) or str(found.st_uid),
            "group": self._groups.get(found.st_gid) or str(found.st_gid),
            "target": None if link is None else to_text(link),
        }


def describe_entry(
    describer: Describer, directory: int | None, name: bytes, path: bytes, relative: bytes = b""
) -> dict[str, Any]:
    """Return the `FileInfo` of *name* in *directory*, a link being itself.

    Raises:
        OSError: there is none.
    """
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    link = os.readlink(name, dir_fd=directory) if stat.S_ISLNK(found.st_mode) else None
    return describer.describe(path, found, relative=relative, link=link)


def _names(text: str) -> dict[int, str]:
    """Return id → name of a passwd or group file; the first line of an id counts."""
    names: dict[int, str] = {}
    for line in text.split("\n"):
        fields = line.split(":")
        if len(fields) >= 3 and fields[2].isdecimal() and len(fields[2]) <= 10:
            names.setdefault(int(fields[2]), to_text(fields[0].encode("utf-8", "surrogateescape")))
    return names
