"""What a command may do less than its supervisor: capabilities, system calls, limits.

Pure: this file builds bit sets and BPF bytes, `atoll.agent.stub` applies them between fork and
exec. The runtime has put a first filter and a first capability set on the whole sandbox; this
second set is smaller than the agent's, which is what keeps root inside from tracing the agent:
the kernel refuses to trace a process that holds a capability the tracer lacks.
"""

import errno
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

CAPABILITIES: Final[Mapping[str, int]] = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "SYS_CHROOT": 18,
    "SETFCAP": 31,
}
"""Capabilities of commands that run as root: what package managers and their scripts need."""

COMMAND_SET: Final = sum(1 << number for number in CAPABILITIES.values())
LAST_CAPABILITY: Final = 63
OOM_SCORE_ADJ: Final = 500
"""Commands are the first to go when memory is short, the agent is not."""

UMASK: Final = 0o022

CLONE_NEW: Final = 0x7E02_0080
"""Every CLONE_NEW* flag: NS, CGROUP, UTS, IPC, USER, PID, NET and TIME."""

TIOCSTI: Final = 0x5412
TIOCLINUX: Final = 0x541C
_BTRFS: Final = 0x9400
"""Requests of btrfs. Whoever may write to a folder may make a subvolume in it: one in a volume has a
limit of its own, none, and is in no snapshot."""

_CLONING: Final = (0x4004_9409, 0x4020_940D, 0xC018_9436)
"""FICLONE, FICLONERANGE and FIDEDUPERANGE have numbers of btrfs and are anybody's: `cp --reflink`."""

_AF_REFUSED: Final = (17, 38, 40)  # PACKET, ALG, VSOCK
_ROUTER: Final = 1
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3

_OF_PROCESSES: Final = (
    "prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler",
)  # fmt: skip
"""Calls that change any process of the same user id, without a capability: not pid 1. The agent's
other processes serve one command or wait for one, so who harms them harms his own command."""


class Arch(NamedTuple):
    """System call numbers of one architecture."""

    audit: int
    calls: Mapping[str, int]


_REFUSED: Final = (
    "unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen",
    "fsconfig", "fsmount", "fspick", "mount_setattr", "open_by_handle_at", "name_to_handle_at",
    "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key",
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module",
    "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "swapon", "swapoff",
    "reboot", "quotactl", "quotactl_fd", "acct", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "fanotify_init", "lookup_dcookie", "settimeofday", "clock_settime",
)  # fmt: skip

X86_64: Final = Arch(
    0xC000_003E,
    {
        "ioctl": 16, "socket": 41, "clone": 56, "clone3": 435, "unshare": 272, "setns": 308,
        "mount": 165, "umount2": 166, "pivot_root": 155, "open_tree": 428, "move_mount": 429,
        "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
        "open_by_handle_at": 304, "name_to_handle_at": 303, "bpf": 321, "perf_event_open": 298,
        "userfaultfd": 323, "keyctl": 250, "add_key": 248, "request_key": 249,
        "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313,
        "delete_module": 176, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
        "pidfd_getfd": 438, "swapon": 167, "swapoff": 168, "reboot": 169, "quotactl": 179,
        "quotactl_fd": 443, "acct": 163, "io_uring_setup": 425, "io_uring_enter": 426,
        "io_uring_register": 427, "fanotify_init": 300, "lookup_dcookie": 212,
        "settimeofday": 164, "clock_settime": 227, "setpriority": 141, "sched_setparam": 142,
        "sched_setscheduler": 144, "sched_setaffinity": 203, "ioprio_set": 251, "prlimit64": 302,
        "sched_setattr": 314,
    },
)  # fmt: skip

AARCH64: Final = Arch(
    0xC000_00B7,
    {
        "ioctl": 29, "socket": 198, "clone": 220, "clone3": 435, "unshare": 97, "setns": 268,
        "mount": 40, "umount2": 39, "pivot_root": 41, "open_tree": 428, "move_mount": 429,
        "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
        "open_by_handle_at": 265, "name_to_handle_at": 264, "bpf": 280, "perf_event_open": 241,
        "userfaultfd": 282, "keyctl": 219, "add_key": 217, "request_key": 218,
        "kexec_load": 104, "kexec_file_load": 294, "init_module": 105, "finit_module": 273,
        "delete_module": 106, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
        "pidfd_getfd": 438, "swapon": 224, "swapoff": 225, "reboot": 142, "quotactl": 60,
        "quotactl_fd": 443, "acct": 89, "io_uring_setup": 425, "io_uring_enter": 426,
        "io_uring_register": 427, "fanotify_init": 262, "lookup_dcookie": 18,
        "settimeofday": 170, "clock_settime": 112, "setpriority": 140, "sched_setparam": 118,
        "sched_setscheduler": 119, "sched_setaffinity": 122, "ioprio_set": 30, "prlimit64": 261,
        "sched_setattr": 274,
    },
)  # fmt: skip

ARCHITECTURES: Final[Mapping[str, Arch]] = {"x86_64": X86_64, "aarch64": AARCH64}

_X32_BIT: Final = 0x4000_0000

_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_GREATER_EQUAL, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_AND: Final = 0x54
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_ALLOW: Final = 0x7FFF_0000
_KILL: Final = 0x8000_0000
_ERRNO: Final = 0x0005_0000
_REFUSE: Final = _ERRNO | errno.EPERM
_MISSING: Final = _ERRNO | errno.ENOSYS
_NO_REQUEST: Final = _ERRNO | errno.ENOTTY


class Step(NamedTuple):
    """One struct sock_filter."""

    code: int
    if_true: int
    if_false: int
    value: int


def seccomp_program(arch: Arch) -> bytes:
    """Return the BPF program for commands on *arch*.

    Foreign architectures are killed: their numbers would mean other calls. `clone3` does not
    exist for a command, because a filter cannot look into its argument block; libraries fall
    back to `clone`.
    """
    calls = arch.calls
    steps = [
        Step(_LOAD, 0, 0, _ARCH),
        Step(_JUMP_EQUAL, 1, 0, arch.audit),
        Step(_RETURN, 0, 0, _KILL),
        Step(_LOAD, 0, 0, _NUMBER),
    ]
    if arch is X86_64:
        steps += _answer(_JUMP_GREATER_EQUAL, _X32_BIT, _REFUSE)
    steps += _answer(_JUMP_EQUAL, calls["clone3"], _MISSING)
    for name in _REFUSED:
        steps += _answer(_JUMP_EQUAL, calls[name], _REFUSE)
    steps += _argument(calls["clone"], 0, [(_JUMP_SET, CLONE_NEW)])
    steps += _requests(calls["ioctl"])
    steps += _argument(calls["socket"], 0, [(_JUMP_EQUAL, family) for family in _AF_REFUSED])
    for name in _OF_PROCESSES:
        steps += _argument(calls[name], 0, [(_JUMP_EQUAL, _ROUTER)])
    for name, everybody in (("setpriority", _PRIO_USER), ("ioprio_set", _IOPRIO_WHO_USER)):
        steps += _arguments(calls[name], [(0, _JUMP_EQUAL, everybody), (1, _JUMP_EQUAL, _ROUTER)])
    steps.append(Step(_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _requests(ioctl: int) -> list[Step]:
    """Refuse typing into terminals, and have all files be on a file system that is not btrfs."""
    body = [Step(_LOAD, 0, 0, _ARGUMENTS + 8)]
    for request in (TIOCSTI, TIOCLINUX):
        body += _answer(_JUMP_EQUAL, request, _REFUSE)
    for request in _CLONING:
        body += _answer(_JUMP_EQUAL, request, _ALLOW)
    body.append(Step(_AND, 0, 0, 0xFF00))
    body += [*_answer(_JUMP_EQUAL, _BTRFS, _NO_REQUEST), Step(_RETURN, 0, 0, _ALLOW)]
    return [Step(_JUMP_EQUAL, 0, len(body), ioctl), *body]


def _answer(jump: int, value: int, answer: int) -> list[Step]:
    return [Step(jump, 0, 1, value), Step(_RETURN, 0, 0, answer)]


def _argument(call: int, index: int, tests: Sequence[tuple[int, int]]) -> list[Step]:
    """Refuse *call* when the low word of its argument *index* matches one of *tests*."""
    return _arguments(call, [(index, jump, value) for jump, value in tests])


def _arguments(call: int, tests: Sequence[tuple[int, int, int]]) -> list[Step]:
    """Refuse *call* when the low word of one of its arguments matches its test."""
    body: list[Step] = []
    for index, jump, value in tests:
        body.append(Step(_LOAD, 0, 0, _ARGUMENTS + 8 * index))
        body += _answer(jump, value, _REFUSE)
    body.append(Step(_RETURN, 0, 0, _ALLOW))
    return [Step(_JUMP_EQUAL, 0, len(body), call), *body]


def command_capabilities(permitted: int) -> int:
    """Return what commands keep of the *permitted* set of the agent."""
    return permitted & COMMAND_SET


def dropped(permitted: int) -> list[int]:
    """Return the capabilities to take out of the bounding set."""
    kept = command_capabilities(permitted)
    return [number for number in range(LAST_CAPABILITY + 1) if not kept >> number & 1]
