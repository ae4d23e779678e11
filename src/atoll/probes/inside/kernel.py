"""What the kernel does for whoever asks: system calls, devices, namespaces, limits of the host."""

import ctypes
import fcntl
import mmap
import os
import re
import resource
import signal
import socket
import stat
import struct
import termios
import time
from collections import defaultdict

from atoll.probes.inside.attempts import (
    Attempts,
    beginning,
    call,
    open_close,
    succeeds_in_child,
    text,
)

_CLONE_NEWUSER = 0x1000_0000
_NAMESPACES = {
    "mount": 0x20000, "cgroup": 0x200_0000, "uts": 0x400_0000, "ipc": 0x800_0000,
    "user": _CLONE_NEWUSER, "pid": 0x2000_0000, "net": 0x4000_0000, "time": 0x80,
}  # fmt: skip
_PTRACE_SEIZE = 0x4206
_CREATE = os.O_CREAT | os.O_WRONLY
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


def masked_paths() -> list[str]:
    """3: what tells about the host is empty, what changes it cannot be written."""
    tries = Attempts()
    null = os.stat("/dev/null")
    is_null = stat.S_ISCHR(null.st_mode) and null.st_rdev == os.makedev(1, 3)
    tries.expect("/dev/null is another device", is_null)
    for path in (
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger",
        "/sys/kernel/uevent_helper", "/proc/sys/vm/drop_caches", "/proc/irq/default_smp_affinity",
    ):  # fmt: skip
        tries.refused(f"write {path}", open_close, path, os.O_WRONLY)
    for path in (
        "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/interrupts", "/proc/modules",
        "/proc/slabinfo", "/proc/vmallocinfo", "/proc/config.gz", "/proc/latency_stats",
    ):  # fmt: skip
        tries.expect(f"read {path}", not beginning(path))
    return tries.violations


def cgroup_escape() -> list[str]:
    """6: nothing can be mounted, and no control group is within reach."""
    tries = Attempts()
    target = os.fsencode("/tmp")
    for kind in (b"tmpfs", b"cgroup", b"cgroup2", b"proc", b"sysfs", b"overlay"):
        tries.filtered("mount", b"x", target, kind, 0, None)
    tries.filtered("umount2", b"/proc", 2)
    tries.filtered("fsopen", b"tmpfs", 0)
    tries.filtered("open_tree", -100, b"/", 1)
    tries.filtered("mount_setattr", -1, b"", 0, None, 0)
    tries.filtered("pivot_root", b"/x", b"/x")
    tries.filtered("setns", 0, 0)
    tries.expect("/sys/fs/cgroup is there", not os.path.exists("/sys/fs/cgroup"))
    tries.refused("write to /sys", open_close, "/sys/x", _CREATE)
    return sorted(set(tries.violations))


def address_families() -> list[str]:
    """7 and 25: sockets that reach into the kernel or the hypervisor do not exist."""
    tries = Attempts()
    for name, family, kind in (
        ("AF_ALG", 38, socket.SOCK_SEQPACKET), ("AF_VSOCK", 40, socket.SOCK_STREAM),
        ("AF_PACKET", 17, socket.SOCK_RAW), ("AF_BLUETOOTH", 31, socket.SOCK_RAW),
        ("AF_XDP", 44, socket.SOCK_RAW), ("AF_TIPC", 30, socket.SOCK_STREAM),
    ):  # fmt: skip
        tries.refused(name, _socket, family, kind)
    for protocol in (6, 9, 12, 16, 21):
        tries.refused(f"NETLINK {protocol}", _socket, 16, socket.SOCK_RAW, protocol)
    return tries.violations


def _socket(family: int, kind: int, protocol: int = 0) -> None:
    socket.socket(family, kind, protocol).close()


def nested_namespaces() -> list[str]:
    """8: no namespace can be made, so nobody becomes root of a new one."""
    tries = Attempts()
    for name, flag in _NAMESPACES.items():
        tries.expect(f"unshare {name}", not succeeds_in_child("unshare", flag))
        if name != "time":
            tries.expect(f"clone {name}", not _clones(flag))
    tries.filtered("clone3", None, 0)
    return tries.violations


def _clones(flag: int) -> bool:
    """A raw clone without a stack of its own behaves like fork."""
    try:
        pid = call("clone", flag | signal.SIGCHLD, 0, 0, 0, 0)
    except OSError:
        return False
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def risky_calls() -> list[str]:
    """9: calls with a record of kernel faults, or that act on the host, are filtered."""
    tries = Attempts()
    big = ctypes.create_string_buffer(256)
    tries.filtered("io_uring_setup", 0, big)
    tries.filtered("io_uring_enter", -1, 0, 0, 0, None, 0)
    tries.filtered("io_uring_register", -1, 0, None, 0)
    tries.filtered("bpf", 99, big, 8)
    tries.filtered("userfaultfd", 1 << 20)
    tries.filtered("keyctl", 0, 0)
    tries.filtered("add_key", b"user", b"x", b"y", 1, -1)
    tries.filtered("request_key", b"user", b"x", None, 0)
    tries.filtered("perf_event_open", big, 0, -1, -1, 0)
    tries.filtered("kexec_load", 0, 0, None, 1)
    tries.filtered("open_by_handle_at", -1, big, 0)
    tries.filtered("name_to_handle_at", -1, b"x", big, big, 0)
    tries.filtered("init_module", None, 0, b"")
    tries.filtered("kcmp", 0, 0, 99, 0, 0)
    tries.filtered("swapon", b"/x", 0)
    tries.filtered("acct", b"/x")
    tries.filtered("syslog", 10, None, 0)
    tries.filtered("quotactl", 0, b"/x", 0, None)
    tries.filtered("quotactl_fd", -1, 0, 0, None)
    tries.filtered("pidfd_getfd", -1, 0, 0)
    tries.filtered("process_vm_readv", 1, None, 0, None, 0, 1)
    tries.filtered("sethostname", None, 1 << 20)
    tries.filtered("modify_ldt", 99, None, 0)
    tries.filtered("ptrace", _PTRACE_SEIZE, 1, 0, 0)
    return tries.violations


def terminal_injection() -> list[str]:
    """20: nothing can be typed into a terminal, whatever the upper half of the number says."""
    tries = Attempts()
    for name, request in (("TIOCSTI", _TIOCSTI), ("TIOCLINUX", _TIOCLINUX)):
        for upper in (0, 1 << 32, 0x7FFF_FFFF << 32):
            number = upper | request
            tries.expect(f"{name} with {upper:#x}", _is_filtered_on_own_terminal(number))
    leader, _ = os.openpty()
    size = fcntl.ioctl(leader, 0x5413, bytes(8))
    tries.expect("a terminal's size cannot be read", len(struct.unpack("4H", size)) == 4)
    return tries.violations


def _is_filtered_on_own_terminal(request: int) -> bool:
    """The kernel refuses it by itself on a terminal that is not the caller's own."""
    if (pid := os.fork()) == 0:
        os.setsid()
        _, follower = os.openpty()
        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
        tries = Attempts()
        tries.filtered("ioctl", follower, request, ctypes.c_char_p(b"x"))
        os._exit(len(tries.violations))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def devices() -> list[str]:
    """25: only the devices every program needs, and no addresses of the kernel."""
    tries = Attempts()
    known = {
        "null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "shm", "mqueue",
        "fd", "stdin", "stdout", "stderr", "core", ".atoll",
    }  # fmt: skip
    tries.violations += [f"/dev/{name}" for name in sorted(set(os.listdir("/dev")) - known)]
    for name in ("mem", "kmem", "port", "kmsg", "kvm", "fuse", "vda", "sda", "loop0", "net/tun"):
        tries.refused(f"open /dev/{name}", open_close, f"/dev/{name}", os.O_RDONLY)
    for kind, device in ((stat.S_IFCHR, os.makedev(1, 1)), (stat.S_IFBLK, os.makedev(7, 0))):
        tries.refused(f"make a device {kind:o}", os.mknod, "/tmp/node", kind | 0o600, device)
    addresses = re.findall(r"^([0-9a-f]+) ", text("/proc/kallsyms"), re.MULTILINE)
    tries.expect("kernel addresses", not any(int(a, 16) for a in addresses))
    return tries.violations


def status() -> list[str]:
    """25: what the kernel says about a command: privileges, filters, ids."""
    told: defaultdict[str, str] = defaultdict(
        lambda: "0"
    )  # what a kernel does not tell does not hold
    told |= re.findall(r"^(\w+):\s*(.*)$", text("/proc/self/status"), re.MULTILINE)
    tries = Attempts()
    tries.expect("new privileges", told["NoNewPrivs"] == "1")
    tries.expect("one filter only", int(told["Seccomp_filters"]) >= 2)
    tries.expect("no filter", told["Seccomp"] == "2")
    allowed = sum(1 << n for n in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 31))
    for name in ("CapEff", "CapPrm", "CapBnd"):
        tries.expect(f"{name} {told[name]}", not int(told[name], 16) & ~allowed)
    for name in ("CapInh", "CapAmb"):
        tries.expect(f"{name} {told[name]}", not int(told[name], 16))
    inside, outside, count = (int(n) for n in text("/proc/self/uid_map").split())
    # Of a user who is not root that user is the only one inside (level bwrap). Who that is cannot be
    # seen: the map tells of the namespace above, which has but that one, as its root, too.
    own = (inside, count) == (0, 1)
    tries.expect("host ids", own or ((inside, count) == (0, 65_536) and outside >= 65_536))
    tries.expect("core dumps", resource.getrlimit(resource.RLIMIT_CORE) == (0, 0))
    return tries.violations


def exhaustion() -> list[str]:
    """19: there is an end to processes, of the sandbox (limit 64) and not of the host."""
    children = []
    try:
        for _ in range(200):
            pid = os.fork()
            if pid == 0:
                time.sleep(30)
                os._exit(0)
            children.append(pid)
    except OSError:
        pass
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return [f"{len(children)} processes"] if len(children) >= 64 else []


def host_limits() -> list[str]:
    """26: calls that consume what the kernel counts once for the whole host."""
    tries = Attempts()
    context = ctypes.c_ulong(0)
    tries.filtered("io_setup", 1, ctypes.byref(context))
    tries.filtered("io_destroy", 0)
    tries.filtered("io_submit", 0, 0, None)
    tries.filtered("io_cancel", 0, None, None)
    tries.filtered("io_getevents", 0, 0, 0, None, None)
    tries.refused("huge pages of mmap", mmap.mmap, -1, 2 << 20, 0x40022)
    tries.refused("huge pages of a memfd", os.memfd_create, "x", 0x4)
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFF))
    filters = struct.pack("HP", 1, ctypes.addressof(program))
    with socket.socket(socket.AF_UNIX) as own:
        for option in (26, 51):
            tries.refused(f"socket filter {option}", own.setsockopt, 1, option, filters)
    return tries.violations
