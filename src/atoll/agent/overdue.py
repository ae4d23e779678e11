"""Deadlines of commands, kept by the router: the one process nothing inside can stop.

A supervisor keeps its command's time itself, and says so. But root inside may stop it or the
whole tree again and again; then pid 1 wakes it, asks it once more, and ends it in the end.
"""

import signal
from collections.abc import Callable
from typing import Final

from atoll.agent import tree
from atoll.agent.loop import Loop, Timer
from atoll.wire.agent import TIMEOUT_GRACE

MARGIN: Final = 1.5
"""Seconds beyond a time limit and its grace that a supervisor has on a busy machine."""

ASKED: Final = 1.0
"""Seconds that it has once it was woken up and asked."""


class Deadline:
    """Ends the supervisor of one command that does not end in time.

    Args:
        limit: seconds the command may take.
        ask: wakes the supervisor up and tells it to end its command at once.
        end: called before the supervisor is killed; returns its process, or None when the command
            has ended meanwhile.
    """

    def __init__(
        self, loop: Loop, limit: float, *, ask: Callable[[], None], end: Callable[[], int | None]
    ) -> None:
        self._loop, self._ask, self._end = loop, ask, end
        self._timer: Timer = loop.later(limit + TIMEOUT_GRACE + MARGIN, self._passed)

    def cancel(self) -> None:
        """The command has ended."""
        self._timer.cancel()

    def _passed(self) -> None:
        self._timer = self._loop.later(ASKED, self._kill)
        self._ask()

    def _kill(self) -> None:
        if (pid := self._end()) is not None:
            tree.send(pid, signal.SIGSTOP)
            tree.kill_all(pid)
            tree.send(pid, signal.SIGKILL)
