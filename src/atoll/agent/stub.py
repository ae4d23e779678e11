"""The process between fork and exec: it becomes the command.

A stub is forked ahead, installs the commands' filter and waits for one message: what to run. It
then takes the user's ids, drops capabilities, joins the commands' cgroup and executes. Whatever
fails before is told to the supervisor as a stage and an errno; nothing runs half confined.

It joins last: until then it has the agent's share of CPU and memory, whatever a fork bomb leaves
of the sandbox's. One that joined early took 4 to 40 s beside one to become `echo`.
"""

import errno
import fcntl
import functools
import os
import resource
import signal
import socket
import sys
import termios
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final, NoReturn

from atoll.agent import channel, confine, kernel
from atoll.agent.config import Config
from atoll.agent.descriptors import keep_only
from atoll.agent.memory import give_way

_HIGH: Final = 512
"""Descriptors are parked from here on, out of the way of the numbers the command's shall get."""


class _FailedError(Exception):
    def __init__(self, stage: str, number: int, path: str = "") -> None:
        super().__init__(stage)
        self.report = {"failed": stage, "errno": number, "path": path}


def become_command(sock: socket.socket, config: Config) -> NoReturn:
    """Wait for the plan on *sock* and execute it; exits without a trace when *sock* ends."""
    try:
        sock = _parked(sock)
        procs = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in config.procs]
        _prepare(config)
        _rehearse()
        if message := channel.receive(sock):
            _execute(sock, message, config, procs)
    except _FailedError as failure:
        channel.send(sock, failure.report)
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        channel.send(sock, _FailedError("start", 0, str(error)).report)
    finally:
        os._exit(127)


def _prepare(config: Config) -> None:
    """Do everything that does not depend on the command."""
    default_signals()
    os.setsid()
    os.umask(confine.UMASK)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(config.files, hard), hard))
    set_limits(config.limits)
    give_way(confine.OOM_SCORE_ADJ)
    if config.confine:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.install_filter(commands_filter())


def set_limits(limits: Mapping[str, int]) -> None:
    """Set what the runtime has no cgroup for; nobody inside can raise it again."""
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (most, most))


def take_defaults(config: Config) -> None:
    """Do once, in the router, what all that is forked needs: signals, bounding set, filter.

    Done for each stub it took 1 ms, most of it to copy the pages that are touched. Signals are
    blocked from here on, and not ignored: a mask is undone in one step. First they get their
    defaults, also those that libc hides: whoever starts the engine may ignore some, as GNU make
    does.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
    for hidden in range(32, int(signal.SIGRTMIN)):
        kernel.default_signal(hidden)
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - {signal.SIGCHLD})
    if config.confine:
        drop_bounding_set()
        commands_filter()


@functools.cache
def commands_filter() -> bytes:
    """Return the commands' filter for this machine."""
    return confine.seccomp_program(confine.ARCHITECTURES[os.uname().machine])


def drop_bounding_set() -> None:
    """Give up for ever, and for what is executed, the capabilities that commands do not get."""
    for number in confine.dropped(kernel.get_permitted()):
        with suppress(OSError):  # a number above the kernel's last one
            kernel.prctl(kernel.PR_CAPBSET_DROP, number)


def _rehearse() -> None:
    """Touch what the start will touch; see `atoll.agent.rehearsal`."""
    ours, theirs = channel.pair()
    channel.send(ours, {"argv": ["x"], "env": {"A": "1"}, "targets": [0, 1, 2]}, [0, 1, 2])
    if message := channel.receive(theirs):
        for fd in message.fds:
            os.close(fd)
    with suppress(_FailedError):
        _search("x", ["x"], {"A": "1"}, "/nowhere:/nowhere")
    ours.close()
    theirs.close()


def _execute(
    sock: socket.socket, message: channel.Message, config: Config, procs: Sequence[int]
) -> NoReturn:
    plan = message.body
    _place(plan["targets"], message.fds, {sock.fileno(), *procs})
    # Nobody inside may trace it and take *procs* from it, root neither. Executing ends that.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    if plan["tty"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    try:
        take_ids(plan["uid"], plan["gid"], plan["groups"], confined=config.confine)
    except OSError as error:
        raise _FailedError("user", error.errno or 0) from error
    try:
        os.chdir(plan["cwd"])
    except OSError as error:
        raise _FailedError("cwd", error.errno or 0, plan["cwd"]) from error
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    _join(procs)
    channel.send(sock, {"ready": True})
    _search(plan["program"], plan["argv"], plan["env"], plan["path"])


def _join(procs: Sequence[int]) -> None:
    """Move into the commands' cgroup, which no number of processes in it prevents.

    0.06 ms by version 1's `tasks`; by `cgroup.procs` 6 to 13 ms when it is the first for a while.
    """
    try:
        for fd in procs:
            os.write(fd, b"0")
    except OSError as error:
        raise _FailedError("limits", error.errno or 0) from error


def _parked(sock: socket.socket) -> socket.socket:
    """Return the same socket under a number that no target has."""
    parked = fcntl.fcntl(sock.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH)
    sock.close()
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=parked)


def _place(targets: Sequence[int], received: Sequence[int], kept: AbstractSet[int]) -> None:
    """Give every received descriptor its number and close all others but *kept*."""
    parked = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in received]
    for fd, target in zip(parked, targets, strict=True):
        os.dup2(fd, target)
    keep_only({0, 1, 2, *kept, *targets})


def default_signals() -> None:
    """Undo what the router blocks: it would stay blocked in the program."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def take_ids(uid: int, gid: int, groups: Sequence[int], *, confined: bool) -> None:
    """Become the user, with no more than the capabilities of commands.

    Raises:
        OSError: the sandbox has no such id, or the agent may not change its own.
    """
    if os.getuid() == 0:
        _set_groups(groups, uid)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if confined:
        kernel.clear_ambient_capabilities()
        kernel.set_capabilities(confine.command_capabilities(kernel.get_permitted()))


def _set_groups(groups: Sequence[int], uid: int) -> None:
    """Take the user's groups. Where root is the only user there are none to take."""
    try:
        os.setgroups(groups)
    except PermissionError:
        if uid:
            raise


def _search(name: str, argv: list[str], env: dict[str, str], path: str) -> NoReturn:
    """Execute the program *name*, looked for in *path* unless it has a slash."""
    places = [name] if "/" in name else [f"{part or '.'}/{name}" for part in path.split(":")]
    worst = errno.ENOENT
    for place in places:
        try:
            os.execve(place, argv, env)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EACCES}:
                raise _FailedError("exec", error.errno or 0, place) from error
            if error.errno == errno.EACCES:
                worst = errno.EACCES
    raise _FailedError("exec", worst, name)
