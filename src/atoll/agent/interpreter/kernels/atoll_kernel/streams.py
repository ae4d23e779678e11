"""Descriptors 1 and 2, and what Python prints, by execution.

Each execution has pipes of its own. They are 1 and 2 while it runs, so child processes and C code
write into them and keep them. What Python prints goes to the pipe of the execution that the
printing thread or task was started by, also after that has ended.
"""

from __future__ import annotations

import contextvars
import fcntl
import io
import os
import sys
import threading
from typing import Any

HIGH = 600
"""Descriptors of ours are numbered from here on: programs that close 0 to 20 do not meet them."""


class Execution:
    """One run of code: its number and where its output goes to."""

    def __init__(self, number: int, fds: list[int]) -> None:
        self.number = number
        self.fds = [moved(fd) for fd in fds]
        self.ended = False

    def holders(self) -> bool:
        """Whether a thread that it started still runs."""
        return any(
            getattr(thread, "_atoll_execution", None) is self for thread in threading.enumerate()
        )

    def close(self) -> None:
        """Give the pipes up; what is printed later is dropped."""
        fds, self.fds = self.fds, []
        for fd in fds:
            os.close(fd)


current: contextvars.ContextVar[Execution | None] = contextvars.ContextVar("execution")
_running: list[Execution] = []  # at most one
_kept: list[Execution] = []  # ended, but threads of theirs run on


def begin(execution: Execution) -> None:
    """Make its pipes 1 and 2."""
    for old in [one for one in _kept if not one.holders()]:
        _kept.remove(old)
        old.close()
    _running[:] = [execution]
    current.set(execution)
    for target, fd in zip((1, 2), execution.fds):
        os.dup2(fd, target)


def end(execution: Execution, sink: int) -> None:
    """Flush, and let go of its pipes unless a thread of it still writes there."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()  # type: ignore[union-attr]
        except Exception:
            continue
    _flush_c()
    for target in (1, 2):
        os.dup2(sink, target)
    execution.ended = True
    _running.clear()
    if execution.holders():
        _kept.append(execution)
    else:
        execution.close()


def install() -> None:
    """Replace `sys.stdout` and `sys.stderr`, and let threads remember who started them."""
    sys.stdout = Tagged(0, "strict")
    sys.stderr = Tagged(1, "backslashreplace")
    start = threading.Thread.start

    def started(self: threading.Thread) -> None:
        self._atoll_execution = _own()  # type: ignore[attr-defined]
        start(self)

    threading.Thread.start = started  # type: ignore[method-assign]


def _own() -> Execution | None:
    thread = threading.current_thread()
    inherited = getattr(thread, "_atoll_execution", None)
    return inherited or current.get(None) or (_running[0] if _running else None)


class _Descriptor(io.RawIOBase):
    """Writes to the pipe of whoever prints."""

    def __init__(self, index: int) -> None:
        self._index = index

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        execution = _own()
        view = memoryview(data)
        if execution and execution.fds:
            rest = view
            while rest:
                rest = rest[os.write(execution.fds[self._index], rest) :]
        return len(view)

    def fileno(self) -> int:
        return self._index + 1

    def isatty(self) -> bool:
        return False


class Tagged(io.TextIOWrapper):
    """Text output that nothing is kept back of: order with child processes is as written."""

    def __init__(self, index: int, errors: str) -> None:
        # A writer that keeps nothing back: print() may come from any thread.
        buffer = io.BufferedWriter(_Descriptor(index), 1)
        super().__init__(buffer, "utf-8", errors, newline="\n", write_through=True)
        self._named = ("<stdout>", "<stderr>")[index]

    @property
    def name(self) -> str:
        """As of an ordinary stream."""
        return self._named

    def write(self, text: str) -> int:
        """Write, and flush what the buffer holds."""
        count = super().write(text)
        self.flush()
        return count

    def close(self) -> None:
        """Stay open: the next code prints too."""


def moved(fd: int) -> int:
    """Return *fd* under a number out of the way of what programs use."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(fd)
    return moved


def _flush_c() -> None:
    """Flush what C code has printed and libc keeps."""
    try:
        import ctypes

        ctypes.CDLL(None).fflush(None)
    except Exception:
        return
