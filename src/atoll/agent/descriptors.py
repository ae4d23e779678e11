"""Descriptors: memory files that carry large values, and what a forked child may keep."""

import os
from collections.abc import Collection


def memory_file(name: str) -> int:
    """Return the descriptor of an empty memory file that is for its owner only.

    The kernel makes them for everybody, mode 0777. Where /proc asks for no right to trace (gVisor),
    any user inside could open them by ``/proc/PID/fd``.
    """
    file = os.memfd_create(name)
    os.fchmod(file, 0o600)
    return file


def spill(data: bytes) -> int:
    """Return the descriptor of a memory file that holds *data*, positioned at its start."""
    file = memory_file("data")
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


def absorb(file: int) -> bytes:
    """Return what the memory file holds and close it."""
    try:
        return read_all(file)
    finally:
        os.close(file)


def read_all(file: int) -> bytes:
    """Return what the memory file holds; its position stays as it is."""
    return read_most(file, os.fstat(file).st_size)


def read_most(file: int, size: int) -> bytes:
    """Return up to *size* bytes from the start of the memory file."""
    parts: list[bytes] = []
    at = 0
    while at < size and (part := os.pread(file, size - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def keep_only(fds: Collection[int]) -> None:
    """Close every descriptor but *fds*: a forked child owns nothing of its parent's."""
    first = 0
    for fd in sorted(fds):
        _close_range(first, fd)
        first = fd + 1
    _close_range(first, 1 << 20)


def _close_range(first: int, end: int) -> None:
    if first < end:  # os.closerange(0, 0) closes everything
        os.closerange(first, end)
