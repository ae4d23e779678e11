"""What is mounted in a tree: files of others, that a tree is not the owner of."""

import os
import re


def below(top: int) -> set[bytes] | None:
    """Return the paths, relative to the directory *top*, at which something is mounted.

    Returns:
        None when that cannot be known.
    """
    try:
        place = os.readlink(b"/proc/self/fd/%d" % top)
        with open(b"/proc/self/mountinfo", "rb") as file:
            return relative(place, file.read())
    except (OSError, IndexError):
        return None


def relative(place: bytes, table: bytes) -> set[bytes]:
    """Return those mount points of *table* that lie below *place*, relative to it. Pure."""
    prefix = place.rstrip(b"/") + b"/"
    points = {unescaped(line.split(b" ", 5)[4]) for line in table.splitlines()}
    return {p[len(prefix) :] for p in points if p.startswith(prefix) and p != prefix}


def type_at(path: bytes, table: bytes) -> bytes:
    """Return the type of the file system that *path*, without links, lies on by *table*. Pure."""
    longest, found = b"", b""
    for line in table.splitlines():
        mount, _, source = line.partition(b" - ")
        point = unescaped(mount.split(b" ", 5)[4]).rstrip(b"/") + b"/"
        if (path.rstrip(b"/") + b"/").startswith(point) and len(point) >= len(longest):
            longest, found = point, source.split(b" ", 1)[0]
    return found


def unescaped(point: bytes) -> bytes:
    """Return a path as it is, of one in the table of mounts."""
    return re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), point)
