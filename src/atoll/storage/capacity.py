"""How much the layer store may take of the disk it lies on. Pure.

A loop device whose file cannot grow answers with I/O errors, which harm every sandbox at once.
So the sum of all layers is limited to what the disk really has left, less a reserve, and a
sandbox that would go over it sees its own disk as full instead.
"""

import os

_OVERHEAD = 64
"""One part in this many is the file system's own: trees of extents and checksums."""


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
