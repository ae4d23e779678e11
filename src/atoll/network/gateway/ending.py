"""Ends a gateway by its pid, which may be anybody's by now. Blocking."""

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

TIMEOUT = 60.0
"""Seconds that a killed process has to be gone."""


def end(pid: int, logs: Path, grace: float = 0.0) -> None:
    """Kill a gateway, a child or not, and return when it is gone.

    Args:
        pid: its own, once.
        logs: the folder that it writes to, which tells it apart from all others.
        grace: seconds that it has to end by itself.
    """
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            # A child has no command line yet for a moment after it was started.
            if not _gone(process, grace) and (_is_child(pid) or is_gateway(pid, logs)):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                _gone(process, TIMEOUT)
        finally:
            os.close(process)
        os.waitpid(pid, os.WNOHANG)


def is_gateway(pid: int, logs: Path) -> bool:
    """Tell whether *pid* is the gateway that writes to *logs*."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return {b"atoll.network.gateway", os.fsencode(logs)} <= set(words)


def _is_child(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _gone(process: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(seconds * 1_000))
