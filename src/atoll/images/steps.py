"""One step of a build: a host program whose output is shown while it runs.

The program runs in a pid and mount namespace of its own. When the caller is cancelled or killed,
the kernel ends everything the program started and drops its mounts; without that, a killed package
manager or builder leaves bind mounts of /proc and /dev inside a directory we are about to delete,
and an orphan goes on writing where the next holder of the store's lock works.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from atoll.errors import RuntimeNotAvailableError, SandboxError
from atoll.host import process

Progress = Callable[[str], None]
"""Gets one line without its end. Called on the event loop; must not block."""

_TAIL = 40
"""Last lines of output that an error carries: enough for a compiler's or pip's last words."""

_PACKAGES = {
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "newuidmap": "uidmap",
    "pip3": "python3-pip",
}
_MAX_LINE = 2_000
_WITH_ENGINE = ("setpriv", "--pdeathsig=KILL")
_NAMESPACES = (
    "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
    "--mount-proc",
)  # fmt: skip


class StepFailedError(Exception):
    """A program of a step exited non-zero; `tail` has the last lines of its output."""

    def __init__(self, program: str, code: int, tail: str) -> None:
        super().__init__(f"{program} exited with {code}")
        self.program = program
        self.code = code
        self.tail = tail


async def run_step(
    argv: Sequence[str | Path],
    progress: Progress,
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    root: Path | None = None,
    many_ids: bool = False,
) -> None:
    """Run *argv* and pass on its output, line by line. Without root it is root of its namespaces.

    Args:
        argv: program and arguments.
        progress: gets each line of output.
        timeout: seconds until everything the step started is killed.
        env: added to a minimal environment.
        root: directory to run it in as its root; None: the host's own.
        many_ids: without root, it makes a namespace with more than one user by itself.

    Raises:
        RuntimeNotAvailableError: the program is not installed.
        StepFailedError: it exited non-zero.
        TimeoutError: the time was over.
    """
    program = str(argv[0])
    chroot = ("--root", root, "--wd", "/") if root else ()
    tail: deque[str] = deque(maxlen=_TAIL)

    def show(line: str) -> None:
        tail.append(line)
        progress(line)

    alone = () if many_ids and os.geteuid() else (*_NAMESPACES, *_own_user())
    code = await _stream([*_WITH_ENGINE, *alone, *chroot, *argv], show, timeout=timeout, env=env)
    if code == 127 and not root:
        raise missing_tool(program)
    if code:
        raise StepFailedError(program, code, "\n".join(tail))


def _own_user() -> tuple[str, ...]:
    return ("--user", "--map-root-user") if os.geteuid() else ()


def missing_tool(program: str) -> SandboxError:
    """Return the error that says which package has *program*."""
    package = _PACKAGES.get(program, program)
    return RuntimeNotAvailableError(
        f"{program} is not installed",
        context={"tool": program},
        suggestion=f"apt-get install {package}",
    )


class Stopwatch:
    """Says how long each named part took, as a progress line."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._start = time.monotonic()

    def lap(self, what: str) -> None:
        """Report the seconds since the last lap."""
        now = time.monotonic()
        self._progress(f"{what}: {now - self._start:.1f} s")
        self._start = now


async def _stream(
    argv: Sequence[str | Path],
    show: Progress,
    *,
    timeout: float,
    env: Mapping[str, str] | None,
) -> int:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    lines = asyncio.create_task(_lines(reader, show))
    try:
        done = await process.run(argv, timeout=timeout, env=env, stdout=writer, stderr=writer)
    except FileNotFoundError as error:
        raise missing_tool(str(argv[0])) from error
    finally:
        # Every other holder of the pipe is gone with the step's pid namespace.
        os.close(writer)
        await lines
    return done.code


async def _lines(descriptor: int, show: Progress) -> None:
    stream = asyncio.StreamReader(limit=_MAX_LINE)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(descriptor, "rb", buffering=0)
    )
    rest = b""
    try:
        while chunk := await stream.read(1 << 16):
            *whole, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
            for line in whole:
                _show(line, show)
            rest = rest[-_MAX_LINE:]
        _show(rest, show)
    finally:
        transport.close()


def _show(line: bytes, show: Progress) -> None:
    if text := line[:_MAX_LINE].decode(errors="replace").rstrip():
        show(text)
