"""How a process tree is ended: TERM, grace, then KILL until nothing is left."""

import os
import signal
from collections.abc import Callable
from typing import Final

from atoll.agent import tree
from atoll.agent.loop import Loop, Timer

_AGAIN: Final = 0.02
_AGAIN_MOST: Final = 0.5
UNKILLABLE: Final = 5.0
"""Seconds after the first KILL until a process counts as stuck in the kernel (a dead mount)."""


class Ending:
    """Ends everything below this process; *on_stuck* is called when KILL does not help.

    Attributes:
        session: whose orphans are ended too: see `atoll.agent.tree`.
    """

    def __init__(self, loop: Loop, on_stuck: Callable[[], None]) -> None:
        self._loop, self._on_stuck = loop, on_stuck
        self._timer: Timer | None = None
        self._stuck: Timer | None = None
        self._pause = _AGAIN
        self.reason: str | None = None
        self.session = -1

    def begin(self, reason: str, grace: float, number: int = signal.SIGTERM) -> None:
        """Send *number* now, KILL after *grace* seconds. The first reason is the one that counts."""
        first = self.reason is None
        self.reason = self.reason or reason
        if first:
            tree.signal_all(os.getpid(), number, self.session)
        self._again(grace)

    def done(self) -> None:
        """Nothing is left: forget the timers."""
        for timer in (self._timer, self._stuck):
            if timer:
                timer.cancel()
        self._timer = self._stuck = None

    def _kill(self) -> None:
        tree.kill_all(os.getpid(), self.session)
        self._stuck = self._stuck or self._loop.later(UNKILLABLE, self._on_stuck)
        self._pause = min(self._pause * 2, _AGAIN_MOST)
        self._again(self._pause)

    def _again(self, delay: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.later(delay, self._kill)
