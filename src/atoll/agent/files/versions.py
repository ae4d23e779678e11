"""Whether anything below a path changed since an earlier look.

The version is a digest of the tree: names, modes and owners of all entries that count, and inode,
size, mtime and ctime of what is no directory. ctime cannot be set by a user, so no change of content or metadata goes
unseen. Nothing is kept between calls: a version stays valid over sleep, restarts and any length
of time, and an idle sandbox pays nothing for it. A look costs one walk.

A tree in memory ends with the start it was made in. Its versions say which one that was, since
what the next start has there is another tree, whatever its numbers are.
"""

import os
import stat
from typing import Any, Final

from atoll.agent.files import filters, memory, pathnames, walking
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Stream

_FORM: Final = "2"


def check_changes(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Return the version of the tree at ``path`` and how it compares with ``since``."""
    path, since = fields.path(), fields.optional_text("since")
    chosen = filters.from_request(fields)
    prefix = f"{_FORM}-{chosen.digest()}-"
    with pathnames.blame(path):
        start = f"{_this_start()}." if memory.is_in_memory(path) else ""
        version = prefix + start + _digest(stream, path, chosen)
    if since is None or since == version:
        return {"status": "unchanged", "version": version}
    if not since.startswith(prefix):
        return {"status": "resync", "version": version, "reason": "expired"}
    if not since.startswith(prefix + start):
        return {"status": "resync", "version": version, "reason": "restarted"}
    return {"status": "changed", "version": version}


def _this_start() -> str:
    """Return what differs between two starts of a sandbox: when its first process began."""
    with open("/proc/1/stat", "rb") as file:
        ticks = file.read().rpartition(b")")[2].split()[19].decode()
    return f"{_this_boot()}{int(ticks):x}"


def _this_boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(8)
    except FileNotFoundError:  # gVisor (of 2022), whose kernel boots with the sandbox
        with open("/proc/stat", encoding="ascii") as file:
            return next(f"{int(line[6:]):x}." for line in file if line.startswith("btime "))


def _digest(stream: Stream, path: bytes, chosen: filters.Filter) -> str:
    import hashlib

    digest = hashlib.blake2b(_signature(os.stat(path)), digest_size=16)
    if not os.path.isdir(path):
        return digest.hexdigest()
    with walking.opened(path) as top:
        for item in walking.walk(top, accept=chosen.enters, recursive=chosen.recursive):
            stream.check()
            if chosen.reports(item.relative):
                try:
                    found = os.stat(item.name, dir_fd=item.directory, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                digest.update(item.relative + b"\0" + _signature(found))
    return digest.hexdigest()


def _signature(found: os.stat_result) -> bytes:
    """Return what must not change.

    A directory's size and times tell of entries that may not count; its inode is another one after
    a restart, where overlayfs makes it up.
    """
    content: tuple[int, ...] = ()
    if not stat.S_ISDIR(found.st_mode):
        content = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return repr((found.st_mode, found.st_uid, found.st_gid, *content)).encode()
