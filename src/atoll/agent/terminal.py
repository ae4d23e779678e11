"""Pseudo terminals: opened by the supervisor, controlled by the command's session."""

import fcntl
import os
import struct
import termios
from contextlib import suppress
from typing import Final

_TIOCSPTLCK: Final = 0x4004_5431
_TIOCGPTPEER: Final = 0x5441
_VEOF_DEFAULT: Final = b"\x04"


def open_pair(terminals: int, cols: int, rows: int) -> tuple[int, int]:
    """Return master and slave of a new terminal of that size.

    The slave is opened through the master, never by its name: the name belongs to the sandbox.

    Args:
        terminals: descriptor of /dev/ptmx as a place; see `atoll.agent.devices`.

    Raises:
        OSError: the sandbox has no terminals left, or no /dev/ptmx.
    """
    master = os.open(f"/proc/self/fd/{terminals}", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("=i", 0))
        slave = fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        resize(master, cols, rows)
    except BaseException:
        os.close(master)
        raise
    return master, slave


def give(slave: int, uid: int, gid: int) -> None:
    """Make the terminal the command's user's own, so that programs can open it by its name."""
    os.fchown(slave, uid, gid)
    os.fchmod(slave, 0o620)


def resize(master: int, cols: int, rows: int) -> None:
    """Set the size in characters; the foreground group gets SIGWINCH."""
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("=HHHH", rows, cols, 0, 0))


def end_of_input(master: int) -> bytes:
    """Return the character that means "no more input" on this terminal now."""
    with suppress(OSError, termios.error):
        control = termios.tcgetattr(master)[6]
        if isinstance(control[termios.VEOF], bytes) and control[termios.VEOF] != b"\0":
            return bytes(control[termios.VEOF])
    return _VEOF_DEFAULT
