"""The time an agent may go on without hearing of its engines: then it ends, and all of its sandbox.

Its Pod may be on a node that is cut off, and another one started in its place: nobody can end it
from outside, so it does that itself, in time. A renewal names a point of this agent's own clock, as
an earlier answer told it: one that was under way for long renews nothing. The clock counts while the
machine is suspended, and is looked at before anything is served.
"""

import math
import os
import time
from collections.abc import Callable
from typing import Final

from atoll import errors
from atoll.agent import answer, tree
from atoll.agent.answer import Request
from atoll.agent.loop import Loop

LOOK: Final = 0.5
"""Seconds between two looks at the clock: the loop's own stands still while suspended."""


def boot_clock() -> float:
    """Return the seconds since the machine was started, also those of its suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def end() -> None:
    """End this process and all below it at once. Of pid 1 the kernel ends the whole namespace."""
    if os.getpid() != 1:
        tree.kill_all(os.getpid())
    os._exit(1)


class Lease:
    """Ends the sandbox when it was not renewed.

    Args:
        loop: watches the clock.
        seconds: from a point of the clock that an answer told until the end; 0: there is no end.
        end: called then.
        clock: see `boot_clock`.
    """

    def __init__(
        self,
        loop: Loop,
        seconds: float,
        end: Callable[[], None] = end,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._loop, self._seconds, self._end, self._clock = loop, seconds, end, clock
        self._until = clock() + seconds if seconds else math.inf
        if seconds:
            self._look()

    def check(self) -> None:
        """End everything if it is time."""
        if self._clock() >= self._until:
            self._end()

    def renew(self, request: Request) -> None:
        """Extend the lease to `until`; answer what the clock says now."""
        until = request.header.get("until")
        now = self._clock()
        if until is not None:
            self._extend(float(until), now)
        answer.reply(self._loop, request.sock, {"now": now, "lease": self._seconds})

    def _extend(self, until: float, now: float) -> None:
        if not until <= now + self._seconds:  # also what is no number
            raise errors.ValidationFailedError("no answer of this agent told that time")
        self._until = max(self._until, until)

    def _look(self) -> None:
        self.check()
        self._loop.later(min(LOOK, max(0.0, self._until - self._clock())), self._look)
