"""How much the layer store may take of the disk it lies on. Pure.

A loop device whose file cannot grow answers with I/O errors, which harm every sandbox at once.
So the sum of all layers is limited to what the disk really has left, less a reserve, and a
sandbox that would go over it sees its own disk as full instead.
"""

import os
from typing import NamedTuple

_OVERHEAD = 64
"""One part in this many is the file system's own: trees of extents and checksums."""


WORTH_TRIMMING = 1 << 30
"""Bytes a store holds without use before it is trimmed by itself."""


class Space(NamedTuple):
    """Bytes of a store in one file.

    `size` is the most it can have, `taken` what it takes of the disk, `used` what layers and
    snapshots refer to, counting what they share once.
    """

    size: int
    taken: int
    used: int

    @property
    def idle(self) -> int:
        """What it holds without use, at least."""
        return max(0, self.taken - self.used - self.taken // _OVERHEAD)


def free_bytes(stat: os.statvfs_result) -> int:
    """Return what ordinary programs may still write."""
    return stat.f_bavail * stat.f_frsize


def store_limit(used: int, allocated: int, free: int, reserve: int) -> int:
    """Return the bytes all layers together may refer to.

    Args:
        used: what they refer to now.
        allocated: what the store's file takes on the disk: also blocks of deleted files, which
            are written again before the file grows.
        free: what the disk has left.
        reserve: what of that is not for sandboxes.
    """
    reusable = allocated - allocated // _OVERHEAD
    return max(used, reusable) + max(0, free - reserve)


def is_worth_setting(current: int, wanted: int, free: int, reserve: int) -> bool:
    """Tell whether the limit in force is too far from *wanted*.

    Setting it costs a transaction, so it may be off by an eighth of the free space, never by more
    than half the reserve once that is what counts.
    """
    tolerance = min(free // 8, reserve // 2) if free < 8 * reserve else free // 8
    return abs(current - wanted) > tolerance
