"""Signals that pid 1 does not react to."""

import signal
from contextlib import suppress


def ignore_signals() -> None:
    """Ignore every signal that root inside can send (SIGCHLD is needed, KILL does not reach pid 1)."""
    kept = {signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP}
    for number in signal.valid_signals() - kept:
        with suppress(OSError):
            signal.signal(number, signal.SIG_IGN)
