"""Which system calls exist inside a sandbox. Pure data and one function; no I/O.

This is an allow list and the first of two filters: it holds for the agent as for every command,
so it allows only what the agent itself needs today or what ordinary programs need. Of what changes
mounts or makes namespaces that is the little by which the agent gives an isolated session its own
view of processes (`AGENT_ONLY`). `atoll.agent.confine` refuses all of it to commands; beside that
they lack the capability for it, which they cannot get: user namespaces are refused to everybody.

* A call nobody decided about answers ENOSYS, because libraries treat that as an older kernel and
  fall back; a call refused on purpose answers EPERM, as it does without the privilege.
* ``clone3`` answers ENOSYS: its flags are behind a pointer that no filter can look through. libc
  then uses ``clone``, whose flags are an argument.
* Only the machine's own calling convention is let in. The 32-bit one has ``socketcall``, whose
  address family is behind a pointer too, and numbers that mean other calls; a 32-bit program is
  killed by SIGSYS.
* The kernel looks at 32 bits of an ``int`` argument and the filter at 64, so every comparison
  masks the upper half away; comparing all 64 bits would let ``TIOCSTI | 1 << 32`` through.
* libseccomp orders the comparisons of one call by operator, MASKED_EQ before GE; a catch-all is
  therefore written ``argument >= 0``. The probes in ``tests/security`` would notice a change.
"""

import errno
from collections.abc import Iterable
from typing import Any

ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
"""Machine (as in `os.uname`) → architecture of the filter."""

ALLOWED = frozenset(
    """
    accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir chmod
    chown chroot clock_adjtime clock_getres clock_gettime clock_nanosleep close close_range
    connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait
    epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat
    faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl
    fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync
    ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list
    getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername
    getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage
    getsid getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioprio_get ioprio_set kill
    landlock_add_rule
    landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen listxattr
    listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack
    membarrier mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall
    mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal
    msgctl msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat open openat
    openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect
    poll ppoll prctl pread64 preadv preadv2 process_mrelease pselect6 ptrace pwrite64
    pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg
    removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction
    rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
    sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget
    semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_tid_address setfsgid
    setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid
    setreuid setrlimit setsid setuid setxattr setxattrat shmat shmctl shmdt
    shutdown sigaltstack signalfd signalfd4 splice stat statfs statx symlink symlinkat sync
    sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun
    timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill
    truncate umask uname unlink unlinkat uretprobe utime utimensat utimes vfork vmsplice wait4
    waitid write writev
    """.split()  # noqa: SIM905  (a list of 300 strings is hard to read)
)
"""Allowed with any arguments. ``ptrace`` is: debuggers work inside, and from 4.8 on a tracer cannot
change what a filter saw; the agent is out of reach because it holds capabilities no tracer has."""

REFUSED = frozenset(
    """
    acct add_key bpf clock_settime delete_module fanotify_init fanotify_mark finit_module
    fsconfig fsmount fsopen fspick get_mempolicy init_module io_uring_enter io_uring_register
    io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind
    migrate_pages modify_ldt mount_setattr move_mount move_pages name_to_handle_at
    open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_madvise
    process_vm_readv process_vm_writev quotactl quotactl_fd reboot request_key set_mempolicy
    set_mempolicy_home_node setdomainname sethostname settimeofday swapoff swapon syslog
    umount2 userfaultfd vhangup
    """.split()  # noqa: SIM905  (a list of 300 strings is hard to read)
)
"""Refused with EPERM, by name, so that a call added to the wrong list is seen in review."""

# What the kernel counts once for the whole host, in no cgroup and no namespace, and what is done:
#   fs.aio-nr               calls do not exist (ENOSYS by default): one loop of io_setup takes all;
#                           databases fall back to threads
#   huge pages              refused by flag, as on a host that has none: the pool is the host's
#   net.core.bpf_jit_limit  socket filters refused: where the interpreter is compiled out, full means
#                           that no sandbox can install a seccomp filter, so none starts. Filters of
#                           `seccomp` stay: 32,768 instructions per task, and tasks are limited
#   keys, bpf, perf, fanotify, io_uring, userfaultfd, swapon, acct, quotactl, syslog,
#   name_to_handle_at       refused below for other reasons too
#   kernel.pty.max          ``max=`` of devpts, in `bundle`
#   inotify, queued signals, timers, POSIX queues, locked memory
#                           by user and by OWNER of the user namespace: the sandbox's own root, see
#                           `driver` (measured with root as owner: 128 inotify instances, 96,362
#                           signals or 9 queues of one sandbox left none to all others and to root)
#   pipe-user-pages, epoll watches, descriptors in flight
#                           by host user id: each sandbox has its own range
#   SysV ipc                limits by ipc namespace, memory by cgroup
#   files, locks, epoll, eventfd, timerfd, memfd
#                           memory of the cgroup; fs.file-max is far above what that buys
#   membarrier              interrupts only processors that run the caller's own threads
HUGE_PAGES = {"mmap": (3, 0x40000), "shmget": (2, 0o4000), "memfd_create": (1, 0x4)}
"""Call → index of its flags and the flag that takes pages from the host's pool."""

SOL_SOCKET, SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF = 1, 26, 51

NAMESPACE_FLAGS = 0x7E02_0000
"""CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}."""

CLONE_NEWNS, CLONE_NEWPID = 0x0002_0000, 0x2000_0000
MS_PROC, MS_BIND, MS_SHARED_ALL, MS_SLAVE_ALL = 0xE, 0x1000, 0x10_4000, 0x8_4000
"""Nosuid, nodev and noexec; a bind mount; a whole tree that passes mounts on, that takes them."""

AGENT_ONLY = {
    "unshare": (0, (CLONE_NEWPID, CLONE_NEWNS)),
    "setns": (1, (CLONE_NEWPID, CLONE_NEWNS)),
    "mount": (3, (MS_PROC, MS_BIND, MS_SHARED_ALL, MS_SLAVE_ALL)),
}
"""Call → index of its flags and their only values; see `atoll.agent.isolation`."""

CLONE_NEWTIME = 0x80
"""Only of ``unshare``: in ``clone`` this bit belongs to the exit signal."""

PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFF_FFFF)
"""Linux, 32-bit uname, their UNAME26 forms, and the query."""

TIOCSTI, TIOCLINUX = 0x5412, 0x541C
"""Put characters into, or paste the selection of, a terminal somebody else reads."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE, NETLINK_SOCK_DIAG = 0, 4

_INT = 0xFFFF_FFFF


def profile(machine: str) -> dict[str, Any]:
    """Return the ``linux.seccomp`` object of an OCI configuration for *machine*.

    Raises:
        KeyError: no profile for this machine; see `ARCHITECTURES`.
    """
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.ENOSYS,
        "architectures": [ARCHITECTURES[machine]],
        "syscalls": [
            _allow(ALLOWED),
            _errno(REFUSED, errno.EPERM),
            *_conditional(),
        ],
    }


def _conditional() -> Iterable[dict[str, Any]]:
    """Calls whose arguments decide: what is let through first, then the refusal of the rest."""
    yield _allow(["clone"], _masked(0, NAMESPACE_FLAGS, 0))
    yield _allow(["unshare"], _masked(0, NAMESPACE_FLAGS | CLONE_NEWTIME, 0))
    for name, (index, wanted) in AGENT_ONLY.items():
        yield from (_allow([name], _masked(index, _INT, flags)) for flags in wanted)
        yield _errno([name], errno.EPERM, _any(index))
    yield _errno(["clone"], errno.EPERM, _any(0))
    yield from (_allow(["personality"], _masked(0, _INT, value)) for value in PERSONALITIES)
    yield _errno(["personality"], errno.EPERM, _any(0))
    # Of the caller itself: the kernel lets root inside set the agent's limits too, down to the
    # processor time after which it is killed.
    yield _allow(["prlimit64"], _masked(0, _INT, 0))
    yield _errno(["prlimit64"], errno.EPERM, _any(0))
    yield from (_errno(["ioctl"], errno.EPERM, _masked(1, _INT, n)) for n in (TIOCSTI, TIOCLINUX))
    yield _allow(["ioctl"], _any(1))
    for name, (index, flag) in HUGE_PAGES.items():
        yield _errno([name], errno.ENOMEM, _masked(index, flag, flag))
        yield _allow([name], _any(index))
    for option in (SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF):
        at = (_masked(1, _INT, SOL_SOCKET), _masked(2, _INT, option))
        yield _errno(["setsockopt"], errno.ENOPROTOOPT, *at)
    yield _allow(["setsockopt"], _any(1))
    for family in (AF_UNIX, AF_INET, AF_INET6):
        yield _allow(["socket"], _masked(0, _INT, family))
    for protocol in (NETLINK_ROUTE, NETLINK_SOCK_DIAG):
        yield _allow(["socket"], _masked(0, _INT, AF_NETLINK), _masked(2, _INT, protocol))
    yield _allow(["socketpair"], _masked(0, _INT, AF_UNIX))
    # What a kernel without the family says. useradd and others treat any other answer from the
    # audit socket as a reason to stop.
    yield _errno(["socket", "socketpair"], errno.EAFNOSUPPORT, _any(0))


def _allow(names: Iterable[str], *args: dict[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = {"names": sorted(names), "action": "SCMP_ACT_ALLOW"}
    return rule | ({"args": list(args)} if args else {})


def _errno(names: Iterable[str], number: int, *args: dict[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = {"names": sorted(names), "action": "SCMP_ACT_ERRNO", "errnoRet": number}
    return rule | ({"args": list(args)} if args else {})


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    """True when the masked argument equals *value* (OCI: ``value`` is the mask)."""
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def _any(index: int) -> dict[str, Any]:
    return {"index": index, "value": 0, "op": "SCMP_CMP_GE"}
