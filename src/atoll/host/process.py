"""The only place of the engine that starts a host process.

A command gets its own session, no standard input unless given, a small explicit environment and
capped buffers; when the caller is cancelled or the time is over, its whole process group is
killed. What a tool prints is data for error messages, never parsed for its outcome: that is the
exit code, or a log file the tool writes (see `atoll.runtime.oci.verdict`).
"""

import asyncio
import fcntl
import os
import pwd
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from atoll.host.waiting import readable

MAX_OUTPUT = 1 << 20
"""Bytes kept of each stream of a host tool; the rest is read and dropped."""


def _home() -> str:
    """Return the home directory of whoever runs the engine; tools look for settings there."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:  # a user without an account
        return "/"


_BASE_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "HOME": _home(),
}


class Completed(NamedTuple):
    """A finished host process. `code` is negative for a signal, as in `subprocess`."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def message(self) -> str:
        """The last lines of stderr (or stdout), for an error message."""
        text = (self.stderr or self.stdout).decode(errors="replace").strip()
        return text[-2_000:]


async def run(
    argv: Sequence[str | Path],
    *,
    timeout: float | None = 60.0,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    stdout: int | None = None,
    stderr: int | None = None,
) -> Completed:
    """Run *argv* to its end and return its exit code and output.

    Args:
        argv: program (found on a fixed PATH) and arguments; no shell is involved.
        timeout: seconds until the process group is killed; None: no limit.
        stdin: bytes to feed; None: empty.
        env: added to a minimal environment; the engine's own is never inherited.
        cwd: working directory; None: the engine's.
        pass_fds: descriptors that stay open under the same numbers.
        stdout: a descriptor to write to instead of being captured.
        stderr: likewise.

    Raises:
        FileNotFoundError: no such program.
        TimeoutError: the time was over; nothing of the group is left.
    """
    process = await asyncio.create_subprocess_exec(
        *map(str, argv),
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE if stdout is None else stdout,
        stderr=asyncio.subprocess.PIPE if stderr is None else stderr,
        env=_BASE_ENV | dict(env or {}),
        cwd=cwd,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout):
            out, err, _ = await asyncio.gather(
                _drain(process.stdout), _drain(process.stderr), _feed(process.stdin, stdin)
            )
            code = await process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    return Completed(code, out, err)


def find(program: str | Path) -> str | None:
    """Return where *program* is; None: it is not installed."""
    return shutil.which(str(program), path=_BASE_ENV["PATH"])


async def _drain(stream: asyncio.StreamReader | None) -> bytes:
    kept = bytearray()
    while stream and (chunk := await stream.read(1 << 16)):
        kept += chunk[: MAX_OUTPUT - len(kept)]
    return bytes(kept)


async def _feed(stream: asyncio.StreamWriter | None, data: bytes | None) -> None:
    if stream is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data or b"")
        await stream.drain()
    stream.close()


def launch(argv: Sequence[str | Path], descriptors: Sequence[int], *, output: int) -> int:
    """Start *argv* in a session of its own, to outlive the engine; return its process id.

    It inherits *descriptors* as 3, 4, … and *output* as its stdout and stderr.

    Args:
        argv: program (found on a fixed PATH) and arguments.
        descriptors: what it inherits, in this order.
        output: descriptor for stdout and stderr.

    Raises:
        FileNotFoundError: no such program.
    """
    program = shutil.which(str(argv[0]), path=_BASE_ENV["PATH"])
    if program is None:
        raise FileNotFoundError(f"there is no program {argv[0]}")
    return _spawn_with([program, *argv[1:]], descriptors, output)


def _spawn_with(argv: Sequence[str | Path], descriptors: Sequence[int], output: int) -> int:
    # Copies above every target: no dup2 in the child can overwrite a source of a later one.
    above = 3 + len(descriptors)
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in (output, *descriptors)]
    try:
        return _spawn([str(part) for part in argv], copies[0], copies[1:])
    finally:
        for fd in copies:
            os.close(fd)


async def run_handing_over(
    argv: Sequence[str | Path],
    descriptors: Sequence[int],
    *,
    output: int,
    timeout: float,
) -> int:
    """Run *argv* with *descriptors* as 3, 4, … whatever their numbers are here; return its code.

    What the program leaves behind keeps them, and *output* as its stdout and stderr. Made with
    posix_spawn, which can renumber without running Python between fork and exec.

    Args:
        argv: absolute path of the program, and its arguments.
        descriptors: what the program inherits, in this order.
        output: descriptor for stdout and stderr.
        timeout: seconds until the process group is killed.

    Raises:
        FileNotFoundError: no such program.
        TimeoutError: the time was over.
    """
    pid = _spawn_with(argv, descriptors, output)
    exited = os.pidfd_open(pid)
    try:
        async with asyncio.timeout(timeout):
            await readable(exited)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        raise
    finally:
        os.close(exited)
        code = _reap(pid)
    return code


def _reap(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _spawn(argv: list[str], output: int, descriptors: Sequence[int]) -> int:
    null = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
    copies = [(os.POSIX_SPAWN_DUP2, fd, 3 + index) for index, fd in enumerate(descriptors)]
    streams = [(os.POSIX_SPAWN_DUP2, output, target) for target in (1, 2)]
    return os.posix_spawn(
        argv[0],
        argv,
        _BASE_ENV,
        file_actions=[null, *streams, *copies],
        setsid=True,
        setsigmask=(),
        # The interpreter ignores these; whoever is started must not inherit that.
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
    )
