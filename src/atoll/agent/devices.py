"""Device files, opened once when the agent starts.

Later their names belong to the sandbox: in place of /dev/null there may be a FIFO, whose open
waits for ever, a file, or nothing.
"""

import os
import stat
from contextlib import suppress
from typing import Final, NamedTuple

_NULL: Final = os.makedev(1, 3)
_TERMINALS: Final = os.makedev(5, 2)


class Devices(NamedTuple):
    """Descriptors shared by all processes of the agent; -1: there is none."""

    empty: int = -1  # /dev/null to read from
    sink: int = -1  # and to write to
    terminals: int = -1  # /dev/ptmx as a place only: each terminal opens it anew
    slaves: int = -1  # /dev/pts, where the other ends of terminals are


def open_devices() -> Devices:
    """Open them.

    Raises:
        OSError: there is no /dev/null.
    """
    return Devices(
        _opened("/dev/null", os.O_RDONLY, _NULL),
        _opened("/dev/null", os.O_WRONLY, _NULL),
        _place("/dev/ptmx", _TERMINALS),
        _folder("/dev/pts"),
    )


def _opened(path: str, flags: int, device: int) -> int:
    place = _place(path, device)
    if place < 0:
        raise FileNotFoundError(f"{path} is no device")
    try:
        return os.open(f"/proc/self/fd/{place}", flags | os.O_CLOEXEC)
    finally:
        os.close(place)


def _folder(path: str) -> int:
    with suppress(OSError):
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return -1


def _place(path: str, device: int) -> int:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return -1
    found = os.fstat(place)
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == device:
        return place
    os.close(place)
    return -1
