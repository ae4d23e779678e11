"""When the router looks for what killed supervisors have left.

Each look reads all of /proc, and what it ends is often a supervisor that was about to leave, whose end
asks for the next look. So all that ask share one: with rounds of their own, 200 supervisors that ended
together kept the router busy with nothing else for minutes.
"""

from collections.abc import Callable
from typing import Final

from atoll.agent.loop import Loop, Timer

_PAUSE: Final = 0.01
_MOST: Final = 0.5
"""Seconds between two looks, at first and at most: what hangs in the kernel stays for ever."""


class Orphans:
    """Looks once for all that ask in one round of the loop, then again while something is left.

    Args:
        look: ends what it finds; returns whether there was anything.
    """

    def __init__(self, loop: Loop, look: Callable[[], bool]) -> None:
        self._loop, self._ask = loop, look
        self._next: Timer | None = None

    def look(self) -> None:
        """Look at the end of this round."""
        self._plan(0.0, _PAUSE)

    def _plan(self, delay: float, pause: float) -> None:
        if self._next:
            self._next.cancel()
        self._next = self._loop.later(delay, lambda: self._look(pause))

    def _look(self, pause: float) -> None:
        self._next = None
        if self._ask():
            self._plan(pause, min(2 * pause, _MOST))
