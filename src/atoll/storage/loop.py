"""Loop devices. A device is released by the kernel when its last user is gone (autoclear).

So a crash between attaching and mounting leaves nothing, and unmounting is all there is to
detaching. A file that is attached already is found by its inode and never attached twice: two
devices over one file would be two caches of the same blocks.
"""

import errno
import fcntl
import os
import struct
from pathlib import Path

_LOOP_SET_CAPACITY = 0x4C07
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_CONFIGURE = 0x4C0A
_LOOP_CTL_GET_FREE = 0x4C82

_AUTOCLEAR = 4
_DIRECT_IO = 16
_BLOCK_SIZE = 4096

_INFO = struct.Struct("=5Q4I64s64s32s2Q")
_CONFIG = struct.Struct(f"=2I{_INFO.size}s8Q")


def attach(file: Path) -> tuple[int, str]:
    """Return an open descriptor and the path of a loop device over *file*: kernel 5.8.

    The device lives while the descriptor is open or a file system is mounted from it. Pages are
    cached once (direct I/O) where the file's own file system can do that.
    """
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        if device := find(file):
            return device
        return _attach_free(fd, file)
    finally:
        os.close(fd)


def find(file: Path) -> tuple[int, str] | None:
    """Return descriptor and path of the device that is attached to *file* already."""
    wanted = file.stat()
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        device = f"/dev/{entry.parts[3]}"
        try:
            fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        if _backing(fd) == (wanted.st_dev, wanted.st_ino):
            return fd, device
        os.close(fd)
    return None


def refresh_size(device_fd: int) -> None:
    """Tell the device that its file has grown."""
    fcntl.ioctl(device_fd, _LOOP_SET_CAPACITY)


def _backing(device_fd: int) -> tuple[int, int] | None:
    answer = bytearray(_INFO.size)
    try:
        fcntl.ioctl(device_fd, _LOOP_GET_STATUS64, answer)
    except OSError:
        return None
    encoded, inode, *_ = _INFO.unpack(answer)
    return _device_number(encoded), inode


def _device_number(encoded: int) -> int:
    """Decode the kernel's "huge" device number into that of `os.stat`."""
    major = (encoded & 0xFFF00) >> 8
    return os.makedev(major, (encoded & 0xFF) | ((encoded >> 12) & 0xFFF00))


def _attach_free(file_fd: int, file: Path) -> tuple[int, str]:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        while True:
            device = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                _configure(fd, file_fd, file)
            except OSError as error:
                os.close(fd)
                if error.errno != errno.EBUSY:
                    raise
                continue  # somebody else took it in between
            return fd, device
    finally:
        os.close(control)


def _configure(device_fd: int, file_fd: int, file: Path) -> None:
    for flags in (_AUTOCLEAR | _DIRECT_IO, _AUTOCLEAR):
        name = os.fsencode(file)[-63:]
        info = _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, flags, name, b"", b"", 0, 0)
        request = _CONFIG.pack(file_fd, _BLOCK_SIZE, info, *[0] * 8)
        try:
            fcntl.ioctl(device_fd, _LOOP_CONFIGURE, request)
            return
        except OSError as error:
            if error.errno != errno.EINVAL or not flags & _DIRECT_IO:
                raise
