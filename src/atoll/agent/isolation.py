"""The own view of processes that an isolated session has: a pid namespace with a /proc of its own.

Each is held by an init process of ours, which mounts its /proc and then only lets the kernel reap.
The supervisors of the session's commands are children of the router, forked into the namespace:
they and all below them see, and can signal, nothing outside. What the runtime has masked in the
sandbox's /proc is masked here by the same mounts.

All of it happens before the commands' filter, which refuses every call that is used here.
"""

import errno
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NoReturn

from atoll import errors
from atoll.agent import kernel
from atoll.agent.descriptors import keep_only

MAX_NAMESPACES: Final = 128
"""Each takes about 2 MB of the agent's cgroup, with its init process and its mounts."""

_UNABLE: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""What kernels and filters say that do not give what is needed: gVisor's has no pidfds to enter."""

_PROC: Final = "/proc"
_VIEW: Final = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


class PidNamespace:
    """One namespace; it lives as long as its init process `pid`.

    Args:
        passed_on: whether what is mounted in the sandbox later is seen in the namespace, too.

    Raises:
        OSError: the kernel makes none here.
    """

    def __init__(self, *, passed_on: bool) -> None:
        self._home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._mounted, done = os.pipe2(os.O_CLOEXEC)
        self._init = -1
        try:
            kernel.unshare(kernel.CLONE_NEWPID)
            self.pid = self._fork_home()
            if not self.pid:
                _be_init(done, passed_on=passed_on)
            self._init = os.pidfd_open(self.pid)
        except OSError:
            self.close()
            raise
        finally:
            os.close(done)

    def fork(self) -> int:
        """Fork a child of this process into the namespace; it has to `enter` before all else."""
        kernel.setns(self._init, kernel.CLONE_NEWPID)
        return self._fork_home()

    def _fork_home(self) -> int:
        """Fork; this process's next child is again in its own namespace."""
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid:
                kernel.setns(self._home, kernel.CLONE_NEWPID)
        return pid

    def enter(self) -> None:
        """See the namespace's own /proc, once its init process has mounted it.

        Raises:
            OSError: it could not, or was killed.
        """
        os.read(self._mounted, 1)  # at its end
        kernel.setns(self._init, kernel.CLONE_NEWNS)

    def kill(self) -> None:
        """End everything in it."""
        with suppress(OSError):
            signal.pidfd_send_signal(self._init, signal.SIGKILL)

    def close(self) -> None:
        """Give up its descriptors: it has ended."""
        for fd in {self._home, self._mounted, self._init} - {-1}:
            os.close(fd)


class Isolation:
    """The namespaces of all isolated sessions, by their init process.

    Args:
        passed_on: see `PidNamespace`; not on a bare host, whose mounts are not ours to change.
    """

    def __init__(self, *, passed_on: bool = False) -> None:
        self._passed_on = passed_on
        self._all: dict[int, PidNamespace] = {}

    def of(self, session: Any) -> PidNamespace | None:
        """Return the namespace that the session's commands run in; one that is gone is made anew.

        Raises:
            NotSupportedByRuntimeError: the kernel makes none here.
            ResourceBusyError: there are `MAX_NAMESPACES`.
        """
        if session is None or not session.isolation:
            return None
        if session.namespace is None or session.namespace.pid not in self._all:
            session.namespace = self._made()
        namespace: PidNamespace = session.namespace
        return namespace

    def _made(self) -> PidNamespace:
        if len(self._all) >= MAX_NAMESPACES:
            raise errors.ResourceBusyError(
                f"there are {MAX_NAMESPACES} isolated sessions",
                context={"limit": MAX_NAMESPACES},
                suggestion="delete some",
            )
        try:
            made = PidNamespace(passed_on=self._passed_on)
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
            raise errors.NotSupportedByRuntimeError(
                "this runtime gives sessions no processes of their own",
                context={"field": "isolation"},
                suggestion="create the session without isolation",
            ) from error
        self._all[made.pid] = made
        return made

    def end(self, session: Any) -> None:
        """End all that is left in the namespace of a session that is deleted."""
        if session.namespace is not None and session.namespace.pid in self._all:
            session.namespace.kill()

    def ended(self, pid: int) -> None:
        """Note that *pid* was reaped."""
        if namespace := self._all.pop(pid, None):
            namespace.close()

    def pids(self) -> set[int]:
        """Return the init processes."""
        return set(self._all)


def _be_init(done: int, *, passed_on: bool) -> NoReturn:
    """Mount /proc, close *done*, and stay; with the last process of a namespace goes all of it."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        keep_only({0, 1, 2, done})
        # The router ignores every signal already. This one ignored, the kernel reaps.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if passed_on:
            kernel.mount("", "/", "", kernel.MS_SHARED | kernel.MS_REC)
        _mount_proc()
        os.close(done)
        while True:
            signal.pause()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _mount_proc() -> None:
    """Give this process, and who enters its mounts, a /proc of its pid namespace."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("", "/", "", kernel.MS_SLAVE | kernel.MS_REC)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        covered = covers(file)
    os.chdir(_PROC)  # the old one: relative names lead there also when it is covered
    kernel.mount("proc", _PROC, "proc", _VIEW)
    for path in covered:
        kernel.mount(path, f"{_PROC}/{path}", "", kernel.MS_BIND)
    os.chdir("/")


def covers(mountinfo: Iterable[str]) -> list[str]:
    """Return what is mounted below /proc, as paths relative to it, outer before inner."""
    points = (line.split()[4] for line in mountinfo)
    below = [point.removeprefix(f"{_PROC}/") for point in points if point.startswith(f"{_PROC}/")]
    return list(dict.fromkeys(below))
