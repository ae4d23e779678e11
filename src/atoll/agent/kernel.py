"""System calls the standard library lacks, by ctypes. The only file of the agent that uses it."""

import ctypes
import errno
import os
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_SET_SECCOMP: Final = 22
PR_CAPBSET_READ: Final = 23
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWPID: Final = 0x2000_0000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC = 0x2, 0x4, 0x8, 0x1000, 0x4000
MS_SLAVE, MS_SHARED = 0x8_0000, 0x10_0000
_SECCOMP_MODE_FILTER: Final = 2
_CAPABILITY_VERSION_3: Final = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


class _CapHeader(ctypes.Structure):
    """struct __user_cap_header_struct."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


_CapData = ctypes.c_uint32 * 6
"""Two struct __user_cap_data_struct: effective, permitted, inheritable; low words first."""


def prctl(option: int, argument: int = 0, second: int = 0) -> int:
    """Change an attribute of this process; raise OSError when the kernel refuses."""
    result: int = _libc.prctl(
        option, ctypes.c_ulong(argument), ctypes.c_ulong(second), ctypes.c_ulong(), ctypes.c_ulong()
    )
    return _checked(result)


def become_subreaper() -> bool:
    """Have orphans below this process become its children; return whether the kernel can."""
    return _known(PR_SET_CHILD_SUBREAPER, 1)


def clear_ambient_capabilities() -> None:
    """Pass no capability on to what is executed; nothing where the kernel has no such set."""
    _known(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)


def _known(option: int, argument: int) -> bool:
    """Call `prctl`; return False when the kernel (gVisor's of 2022) does not know the option."""
    try:
        prctl(option, argument)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def install_filter(program: bytes) -> None:
    """Install a seccomp program (array of struct sock_filter) for this process and its children."""
    fprog = _Program(len(program) // 8, program)
    _checked(
        _libc.prctl(
            PR_SET_SECCOMP,
            ctypes.c_ulong(_SECCOMP_MODE_FILTER),
            ctypes.byref(fprog),
            ctypes.c_ulong(),
            ctypes.c_ulong(),
        )
    )


def get_permitted() -> int:
    """Return the permitted capabilities of this process as a bit set."""
    header, data = _CapHeader(_CAPABILITY_VERSION_3, 0), _CapData()
    _checked(_libc.capget(ctypes.byref(header), ctypes.byref(data)))
    return int(data[1]) | int(data[4]) << 32


def set_capabilities(kept: int) -> None:
    """Make *kept* the effective and permitted set, and the inheritable set empty."""
    low, high = kept & 0xFFFF_FFFF, kept >> 32
    header, data = _CapHeader(_CAPABILITY_VERSION_3, 0), _CapData(low, low, 0, high, high, 0)
    _checked(_libc.capset(ctypes.byref(header), ctypes.byref(data)))


def unshare(flags: int) -> None:
    """Leave the namespaces of *flags* for new ones; that of processes is for children only."""
    _checked(_libc.unshare(ctypes.c_int(flags)))


def setns(fd: int, flags: int) -> None:
    """Enter namespaces of the process (a pidfd) or file of a namespace *fd*; see `unshare`."""
    _checked(_libc.setns(fd, ctypes.c_int(flags)))


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """Attach a file system or a part of one, or change how it passes mounts on (MS_*)."""
    names = (source.encode(), target.encode(), kind.encode())
    _checked(_libc.mount(*names, ctypes.c_ulong(flags), None))


def default_signal(number: int) -> None:
    """Give a signal its default, also one of those that libc keeps for itself (32 and 33)."""
    call = {"x86_64": 13, "aarch64": 134}[os.uname().machine]
    action = bytes(32)  # struct sigaction of the kernel: SIG_DFL, no flags, an empty mask
    _checked(_libc.syscall(ctypes.c_long(call), number, action, None, ctypes.c_size_t(8)))


def syncfs(fd: int) -> None:
    """Write back all of the file system that *fd* is on."""
    _checked(_libc.syncfs(fd))


def exchange(directory: int, one: bytes, other: bytes) -> None:
    """Swap two names of a directory in one step: kernel 3.15."""
    names = ctypes.c_char_p(one), ctypes.c_char_p(other)
    _checked(_libc.renameat2(directory, names[0], directory, names[1], ctypes.c_uint(2)))


def file_system_type(fd: int) -> int:
    """Return the magic number of the file system that *fd* is on (statfs(2), f_type)."""
    buffer = ctypes.create_string_buffer(256)
    _checked(_libc.fstatfs(fd, buffer))
    return int.from_bytes(buffer.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)


def punch_hole(fd: int, offset: int, length: int) -> None:
    """Give back the space of a part of a file, which reads as zeros afterwards."""
    keep_size_and_punch = 0x01 | 0x02
    _checked(
        _libc.fallocate(fd, keep_size_and_punch, ctypes.c_int64(offset), ctypes.c_int64(length))
    )


def inotify_init() -> int:
    """Return the descriptor of a new inotify queue, which does not block."""
    return _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add_watch(queue: int, path: bytes, mask: int) -> int:
    """Return the watch descriptor of *path*; raise OSError when it cannot be watched."""
    return _checked(_libc.inotify_add_watch(queue, path, ctypes.c_uint32(mask)))


def inotify_rm_watch(queue: int, watch: int) -> None:
    """End a watch; one that has ended already is no error."""
    _libc.inotify_rm_watch(queue, watch)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
