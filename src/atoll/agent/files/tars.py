"""The standard library's tar codec, kept away from users and groups of the image.

`tarfile` imports `pwd` and `grp` where they are, and would ask them for names. Here ids stay
numbers: headers are built and members are placed by our own code.
"""

import os
import stat
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

BLOCK = 512


def load() -> Any:
    """Return the module `tarfile`, imported without the user databases if it is not there yet."""
    absent: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    for name in ("pwd", "grp"):
        absent.setdefault(name, None)
    import tarfile

    return tarfile


def header(
    name: bytes,
    found: os.stat_result,
    *,
    link: bytes = b"",
    hard: bool = False,
    records: Mapping[str, str] | None = None,
) -> bytes:
    """Return the header blocks of a member; set-id and sticky bits are left out.

    Args:
        name: of the member.
        found: what the file is.
        link: where it leads.
        hard: whether *link* is another member, of the same file.
        records: extended headers of it.
    """
    tarfile = load()
    info = tarfile.TarInfo(os.fsdecode(name))
    info.mode = found.st_mode & 0o777
    info.uid, info.gid = found.st_uid, found.st_gid
    info.mtime = found.st_mtime_ns // 1_000_000_000
    info.linkname = os.fsdecode(link)
    info.pax_headers = dict(records or {})
    if hard:
        info.type = tarfile.LNKTYPE
    elif stat.S_ISDIR(found.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        info.type = tarfile.SYMTYPE
    else:
        info.size = found.st_size
    blocks: bytes = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    return blocks


def padding(size: int) -> bytes:
    """Return the zeros that fill the last block of *size* bytes of content."""
    return bytes(-size % BLOCK)
