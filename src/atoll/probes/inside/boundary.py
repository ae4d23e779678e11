"""What is near: the agent, its files, descriptors of the host, sockets with a name, mounts."""

import fcntl
import os
import re
import resource
import signal
import stat
import time
from contextlib import suppress

from atoll.probes.inside.attempts import (
    Attempts,
    beginning,
    call,
    files,
    open_close,
    pids,
    succeeds_in_child,
    text,
)

AGENT_DIR = "/dev/.atoll"
_PTRACE_SEIZE = 0x4206
_MS_RDONLY, _MS_REMOUNT, _MS_BIND = 1, 32, 4096
_CREATE = os.O_CREAT | os.O_WRONLY


def runtime_binary() -> list[str]:
    """1: what runs us, and what runs the agent, can be overwritten by nobody inside."""
    tries = Attempts()
    for pid in pids():
        tries.refused(f"write /proc/{pid}/exe", open_close, f"/proc/{pid}/exe", os.O_RDWR)
    for path in files(AGENT_DIR):
        tries.refused(f"write {path}", open_close, path, os.O_RDWR)
    tries.refused("create in the agent", open_close, f"{AGENT_DIR}/x", _CREATE)
    return tries.violations


def descriptors() -> list[str]:
    """2: nothing of the host is open, and up from anywhere ends at our root."""
    tries = Attempts()
    held = [fd for fd in range(256) if _is_open(fd)]
    tries.expect(f"descriptors {held}", held == [0, 1, 2])
    for fd in held:
        kind = stat.S_IFMT(os.fstat(fd).st_mode)
        tries.expect(f"directory at {fd}", kind != stat.S_IFDIR)
    top, root = os.stat("../" * 60), os.stat("/")
    tries.expect("up ends elsewhere", (top.st_dev, top.st_ino) == (root.st_dev, root.st_ino))
    for name in ("fd/3", "root", "cwd"):
        tries.refused(f"follow /proc/1/{name}", os.readlink, f"/proc/1/{name}")
    return tries.violations


def _is_open(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_GETFD)
    except OSError:
        return False
    return True


def sockets_of_the_host() -> list[str]:
    """10: no socket has a name inside, but those a command made itself."""
    tries = Attempts()
    for top in ("/run", "/var/run", "/tmp", "/dev", "/workspace", "/home", "/root", "/mnt"):
        for path in files(top):
            with suppress(OSError):
                tries.expect(f"socket {path}", not stat.S_ISSOCK(os.lstat(path).st_mode))
    for line in text("/proc/net/unix").splitlines()[1:]:
        named = line.split()[7:]
        tries.expect(f"socket {named}", not any(name.startswith("@") for name in named))
    return tries.violations


def read_only_mounts() -> list[str]:
    """15: what is mounted read-only stays so, whatever root inside does."""
    tries = Attempts()
    for line in text("/proc/self/mountinfo").splitlines():
        target, options = line.split()[4:6]
        if "ro" not in options.split(","):
            continue
        flags = _MS_REMOUNT | _MS_BIND
        tries.filtered("mount", None, os.fsencode(target), None, flags, None)
        writing = os.O_WRONLY if os.path.isfile(target) else _CREATE
        path = target if os.path.isfile(target) else f"{target}/written-by-a-probe"
        tries.refused(f"write {target}", open_close, path, writing)
    return sorted(set(tries.violations))


def secrets() -> list[str]:
    """16: nothing of the agent can be read: memory, environment, descriptors, system calls."""
    tries = Attempts()
    for pid in pids():
        if _session(pid) == _session(os.getpid()):
            continue  # a process of this command
        for name in ("environ", "mem", "maps", "smaps", "auxv", "syscall", "stack", "pagemap"):
            path = f"/proc/{pid}/{name}"
            tries.expect(f"read {path}", not beginning(path))
        for name in ("exe", "cwd", "root", "fd/0", "fd/3", "ns/pid"):
            tries.refused(f"follow /proc/{pid}/{name}", os.readlink, f"/proc/{pid}/{name}")
    return tries.violations


def _session(pid: int) -> str:
    return text(f"/proc/{pid}/stat").rpartition(")")[2].split()[3:4][0]


def agent_is_untouchable() -> list[str]:
    """9 and 16: root inside can neither trace the agent nor read it nor take its descriptors."""
    tries = Attempts()
    tries.expect("trace the agent", not succeeds_in_child("ptrace", _PTRACE_SEIZE, 1, 0, 0))
    tries.refused("write its memory", open_close, "/proc/1/mem", os.O_RDWR)
    tries.expect("read its environment", not beginning("/proc/1/environ"))
    tries.refused("follow its descriptors", os.readlink, "/proc/1/fd/3")
    tries.refused("take a descriptor", lambda: call("pidfd_getfd", os.pidfd_open(1), 3, 0))
    tries.refused("change its limits", resource.prlimit, 1, resource.RLIMIT_NOFILE, (9, 9))
    return tries.violations


def signals() -> list[str]:
    """Every signal is sent to pid 1; the test outside sees whether it still answers.

    The kernel keeps from a namespace's first process whatever it has no handler for: what can fail
    here is a handler of the agent.
    """
    for signum in sorted(signal.valid_signals() - {signal.SIGCHLD}):
        for _ in range(2):
            with suppress(OSError):
                os.kill(1, signum)
    time.sleep(0.05)
    state = re.search(r"^State:\t(\w)", text("/proc/1/status"), re.MULTILINE)
    return [] if state and state[1] in "SR" else [f"pid 1 is in state {state and state[1]}"]


def schedule_of_the_agent() -> list[str]:
    """9: root inside moves pid 1 to no other processor, priority or class."""
    tries = Attempts()
    tries.refused("sched_setaffinity", os.sched_setaffinity, 1, {0})
    tries.refused("setpriority", os.setpriority, os.PRIO_PROCESS, 1, 19)
    idle = os.sched_param(0)
    tries.refused("sched_setscheduler", os.sched_setscheduler, 1, os.SCHED_IDLE, idle)
    tries.refused("ioprio_set", call, "ioprio_set", 1, 1, 3 << 13)
    return tries.violations
