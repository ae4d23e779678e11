"""What the gateway's process may not ask of the kernel, as a BPF program. Pure.

It moves bytes between sockets and writes logs: it never starts a program, looks into another process,
mounts, or makes a namespace, so whoever takes it over cannot either. Refused calls answer EPERM, not
death: a library that tries one goes on without it. Code stays what it was when the process was
confined: memory is never made executable.
"""

import errno
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from atoll.host import bpf
from atoll.host.bpf import Step

_SAME: Final[dict[str, int]] = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426,
    "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "pidfd_open": 434, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "quotactl_fd": 443, "landlock_create_ruleset": 444,
    "memfd_secret": 447, "process_mrelease": 448,
}  # fmt: skip
"""Calls that have the same number everywhere."""


class Machine(NamedTuple):
    """A calling convention: AUDIT_ARCH_*, what is refused, and what depends on arguments."""

    audit: int
    refused: Mapping[str, int]
    calls: Mapping[str, int]


X86_64: Final = Machine(
    0xC000_003E,
    {
        "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "ptrace": 101, "syslog": 103,
        "mknod": 133, "personality": 135, "pivot_root": 155, "chroot": 161, "acct": 163,
        "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
        "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
        "init_module": 175, "delete_module": 176, "quotactl": 179, "tkill": 200,
        "lookup_dcookie": 212, "clock_settime": 227, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "mknodat": 259, "unshare": 272, "perf_event_open": 298,
        "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308,
        "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313,
        "memfd_create": 319, "kexec_file_load": 320, "bpf": 321, "execveat": 322,
        "userfaultfd": 323, "pkey_mprotect": 329,
    } | _SAME,
    {"mmap": 9, "mprotect": 10, "socket": 41, "clone": 56, "clone3": 435},
)  # fmt: skip

AARCH64: Final = Machine(
    0xC000_00B7,
    {
        "lookup_dcookie": 18, "mknodat": 33, "umount2": 39, "mount": 40, "pivot_root": 41,
        "chroot": 51, "quotactl": 60, "acct": 89, "personality": 92, "unshare": 97,
        "kexec_load": 104, "init_module": 105, "delete_module": 106, "clock_settime": 112,
        "syslog": 116, "ptrace": 117, "kill": 129, "tkill": 130, "reboot": 142,
        "sethostname": 161, "setdomainname": 162, "settimeofday": 170, "add_key": 217,
        "request_key": 218, "keyctl": 219, "execve": 221, "swapon": 224, "swapoff": 225,
        "perf_event_open": 241, "fanotify_init": 262, "name_to_handle_at": 264,
        "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271,
        "kcmp": 272, "finit_module": 273, "memfd_create": 279, "bpf": 280, "execveat": 281,
        "userfaultfd": 282, "pkey_mprotect": 288, "kexec_file_load": 294,
    } | _SAME,
    {"mmap": 222, "mprotect": 226, "socket": 198, "clone": 220, "clone3": 435},
)  # fmt: skip

MACHINES: Final[Mapping[str, Machine]] = {"x86_64": X86_64, "aarch64": AARCH64}

_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_CLONE_THREAD = 0x0001_0000
_PROT_EXEC = 4

_REFUSE, _MISSING = bpf.ERRNO | errno.EPERM, bpf.ERRNO | errno.ENOSYS


def program(machine: str) -> bytes:
    """Return the filter for *machine*, an array of struct sock_filter.

    Raises:
        KeyError: there is none for this machine.
    """
    audit, refused, calls = MACHINES[machine]
    steps = [
        *bpf.opening(audit, _REFUSE),
        # Its flags lie in memory, which a filter cannot read; libraries fall back to clone.
        Step(bpf.EQUAL, calls["clone3"], 0, 1),
        Step(bpf.RETURN, _MISSING),
    ]
    for number in refused.values():
        steps += [Step(bpf.EQUAL, number, 0, 1), Step(bpf.RETURN, _REFUSE)]
    thread = [Step(bpf.SET, _CLONE_THREAD, 1, 0), Step(bpf.RETURN, _REFUSE)]
    steps += _with_argument(calls["clone"], 0, thread)
    for name in ("mmap", "mprotect"):
        executable = [Step(bpf.SET, _PROT_EXEC, 0, 1), Step(bpf.RETURN, _REFUSE)]
        steps += _with_argument(calls[name], 2, executable)
    families = (_AF_UNIX, _AF_INET, _AF_INET6)
    known = [Step(bpf.EQUAL, family, len(families) - at, 0) for at, family in enumerate(families)]
    steps += _with_argument(calls["socket"], 0, [*known, Step(bpf.RETURN, _REFUSE)])
    steps.append(Step(bpf.RETURN, bpf.ALLOW))
    return bpf.packed(steps)


def _with_argument(number: int, index: int, body: list[Step]) -> Iterable[Step]:
    """Yield *body*, for calls of *number*, with the low half of an argument loaded.

    It returns, or goes on behind itself, where the call is allowed.
    """
    load = bpf.argument(index)
    return [Step(bpf.EQUAL, number, 0, len(body) + 2), load, *body, Step(bpf.RETURN, bpf.ALLOW)]
