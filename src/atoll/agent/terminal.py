"""Pseudo terminals: opened by the supervisor, controlled by the command's session."""

import errno
import fcntl
import os
import struct
import termios
from contextlib import suppress
from typing import Final

from atoll.agent.devices import Devices

_TIOCSPTLCK: Final = 0x4004_5431
_TIOCGPTPEER: Final = 0x5441
_TIOCGPTN: Final = 0x8004_5430
_FLAGS: Final = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
_VEOF_DEFAULT: Final = b"\x04"


def open_pair(devices: Devices, cols: int, rows: int) -> tuple[int, int]:
    """Return master and slave of a new terminal of that size.

    The slave is opened through the master or in the folder that was /dev/pts at the start, never by
    its path: names in /dev belong to the sandbox.

    Raises:
        OSError: the sandbox has no terminals left, or no /dev/ptmx.
    """
    master = os.open(f"/proc/self/fd/{devices.terminals}", _FLAGS)
    try:
        fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("=i", 0))
        slave = _slave(master, devices.slaves)
        resize(master, cols, rows)
    except BaseException:
        os.close(master)
        raise
    return master, slave


def _slave(master: int, folder: int) -> int:
    try:
        return fcntl.ioctl(master, _TIOCGPTPEER, _FLAGS)
    except OSError as error:
        if error.errno != errno.ENOTTY:  # which gVisor says (of 2022): it has no such call
            raise
    number = struct.unpack("=I", fcntl.ioctl(master, _TIOCGPTN, bytes(4)))[0]
    return os.open(str(number), _FLAGS | os.O_NOFOLLOW, dir_fd=folder)


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
