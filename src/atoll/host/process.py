"""The only place of the engine that starts a host process.

A command gets its own session, no standard input unless given, a small explicit environment and
capped buffers; when the caller is cancelled or the time is over, its whole process group is
killed. What a tool prints is data for error messages, never parsed for its outcome: that is the
exit code, or a log file the tool writes (see `atoll.runtime.oci.verdict`).
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MAX_OUTPUT = 1 << 20
"""Bytes kept of each stream of a host tool; the rest is read and dropped."""

_BASE_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "HOME": "/root",
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
