"""Tries what must be refused, and collects what was not.

Arguments are chosen so that a call that gets through does no harm.
"""

import ctypes
import errno
import os
from collections.abc import Callable, Iterator

REFUSED = (errno.EPERM, errno.ENOSYS)
"""What a filter answers. Anything else means that the kernel looked at the call."""

_libc = ctypes.CDLL(None, use_errno=True)

_NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "ptrace": 101, "mount": 165, "umount2": 166, "unshare": 272, "setns": 308, "clone": 56,
        "open_by_handle_at": 304, "name_to_handle_at": 303, "bpf": 321, "perf_event_open": 298,
        "userfaultfd": 323, "keyctl": 250, "add_key": 248, "request_key": 249, "kexec_load": 246,
        "init_module": 175, "kcmp": 312, "swapon": 167, "acct": 163, "syslog": 103, "ioctl": 16,
        "quotactl": 179, "pivot_root": 155, "process_vm_readv": 310, "sethostname": 170,
        "modify_ldt": 154, "ioperm": 173, "io_setup": 206, "io_destroy": 207, "io_getevents": 208,
        "io_submit": 209, "io_cancel": 210, "ioprio_set": 251,
    },
    "aarch64": {
        "ptrace": 117, "mount": 40, "umount2": 39, "unshare": 97, "setns": 268, "clone": 220,
        "open_by_handle_at": 265, "name_to_handle_at": 264, "bpf": 280, "perf_event_open": 241,
        "userfaultfd": 282, "keyctl": 219, "add_key": 217, "request_key": 218, "kexec_load": 104,
        "init_module": 105, "kcmp": 272, "swapon": 224, "acct": 89, "syslog": 116, "ioctl": 29,
        "quotactl": 60, "pivot_root": 41, "process_vm_readv": 270, "sethostname": 161,
        "io_setup": 0, "io_destroy": 1, "io_submit": 2, "io_cancel": 3, "io_getevents": 4,
        "ioprio_set": 30,
    },
}  # fmt: skip

_COMMON = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsmount": 432, "clone3": 435, "pidfd_getfd": 438,
    "mount_setattr": 442, "quotactl_fd": 443,
}  # fmt: skip


def number(name: str) -> int | None:
    """Return the system call number of *name* on this machine, None where there is none."""
    return (_NUMBERS[os.uname().machine] | _COMMON).get(name)


def call(name: str, *args: object) -> int:
    """Make a system call; raise OSError when it fails."""
    found = number(name)
    if found is None:
        raise OSError(errno.ENOSYS, "not on this machine")
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    _libc.syscall.restype = ctypes.c_long
    result: int = _libc.syscall(ctypes.c_long(found), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Attempts:
    """Collects what a probe could do although it must not."""

    def __init__(self) -> None:
        self.violations: list[str] = []

    def refused(self, name: str, attempt: Callable[..., object], *args: object) -> None:
        """Note *name* unless *attempt* fails, for whatever reason."""
        try:
            attempt(*args)
        except OSError:
            return
        self.violations.append(name)

    def filtered(self, name: str, *args: object) -> None:
        """Note the system call *name* unless a filter answers it."""
        try:
            call(name, *args)
        except OSError as error:
            if error.errno in REFUSED:
                return
        self.violations.append(name)

    def expect(self, name: str, holds: bool) -> None:
        """Note *name* unless *holds*."""
        if not holds:
            self.violations.append(name)


def pids() -> list[int]:
    """Return the process ids that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def files(top: str) -> Iterator[str]:
    """Yield the paths below *top* that are no directories."""
    for directory, _, names in os.walk(top):
        yield from (os.path.join(directory, name) for name in names)


def open_close(path: str, flags: int) -> None:
    """Open *path* and nothing else; raise OSError when that fails."""
    os.close(os.open(path, flags))


def beginning(path: str) -> bytes:
    """Return the first bytes of a file; empty when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(64)
    except OSError:
        return b""


def text(path: str) -> str:
    """Return the content of a file; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def succeeds_in_child(name: str, *args: object) -> bool:
    """Whether the system call *name* gets through, in a process that ends with it."""
    if (pid := os.fork()) == 0:
        try:
            call(name, *args)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
