"""Runs the tests below a process that gets every orphan, to see whether they leave any behind.

Agents and engines are detached on purpose and have an empty environment: nothing about such a
process tells who started it. But the kernel gives orphans to the nearest ancestor that asks for
them (PR_SET_CHILD_SUBREAPER), so what is left below it at the end is the tests'.
"""

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

GRACE = 15.0
"""Seconds for what ends by itself after the last test: a private engine puts its sandboxes to
sleep first."""


class Process(NamedTuple):
    pid: int
    parent: int
    state: str
    cwd: str
    argv: str

    def __str__(self) -> str:
        return f"{self.pid} (child of {self.parent}, {self.state}) in {self.cwd}: {self.argv}"


def watched() -> int | None:
    """Split this process: return None in the child, which runs the tests.

    The parent returns only after the child's end, with the exit code for the whole: the child's,
    or 1 if the child was content and yet left processes behind. Those are named and ended.
    """
    prctl = ctypes.CDLL(None).prctl
    sys.stdout.flush()
    sys.stderr.flush()
    tests = os.fork()
    if not tests:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return None
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the tests as well
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _forward(tests))
    code = _reap_until(tests)
    left = _after_grace()
    for process in left:
        print(f"left behind by the tests: {process}", file=sys.stderr)
    _end_all()
    if os.geteuid() == 0:
        _inherit()
    return code or (1 if left else 0)


def _inherit() -> None:
    """Remove from the host what the engines of failed tests left, as the next engine would."""
    from atoll.engine.leftovers import inheritance
    from atoll.engine.leftovers.registry import Registry
    from atoll.settings import Settings

    if count := asyncio.run(inheritance.settle(Settings(), Registry())):
        print(f"removed what {count} engines of tests had left on the host", file=sys.stderr)


def _forward(pid: int) -> Callable[[int, object], None]:
    def forward(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    return forward


def _reap_until(tests: int) -> int:
    """Take in whoever ends, as init would, until the tests do; return their exit code."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == tests:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _after_grace() -> list[Process]:
    end = time.monotonic() + GRACE
    while (left := _below(os.getpid())) and time.monotonic() < end:
        _reap_ended()
        time.sleep(0.05)
    return left


def _reap_ended() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end_all() -> None:
    while left := _below(os.getpid()):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        _reap_ended()
        time.sleep(0.01)


def _below(root: int) -> list[Process]:
    """Return all descendants of *root* but zombies."""
    everyone = [found for path in Path("/proc").glob("[0-9]*") if (found := _read(path))]
    inside = {root}
    while more := {p.pid for p in everyone if p.parent in inside} - inside:
        inside |= more
    return [p for p in everyone if p.pid in inside - {root} and p.state not in "ZX"]


def _read(path: Path) -> Process | None:
    try:
        state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
        argv = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        cwd = os.readlink(path / "cwd") if state not in "ZX" else ""
    except OSError:
        return None
    return Process(int(path.name), int(parent), state, cwd, argv)
