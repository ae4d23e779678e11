"""What counts as activity of a sandbox. One table, which docs/lifecycle.md repeats, and one class.

What *holds* keeps the sandbox awake as long as it lasts, and its end is the time of the last use.
What *renews* is a use at the moment it happens. Everything else, above all reading, is nothing: it
neither wakes nor holds off sleep.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Final


class Effect(Enum):
    """What a use does to the sleep of a sandbox."""

    HOLDS = "holds"
    RENEWS = "renews"
    NOTHING = "nothing"


class Use(Enum):
    """How a sandbox can be used; the values are the words of the documentation."""

    CALL = "a call under way"
    ABANDONED = "a command whose caller may come back"
    KEEP_AWAKE = "a process with `keep_awake`"
    PREVIEW = "a preview request under way"
    START = "its start"
    LOG_OUTPUT = "output of a process that somebody follows"
    FILE_EVENT = "an event of a watch"
    PORT_PROBE = "a wait for a port"
    PREVIEW_TRAFFIC = "traffic of a preview's WebSocket"
    RENEWAL = "`renew_activity_timeout`"
    PROCESS = "a background process"
    OPEN_WATCH = "an open watch or log without traffic"
    OPTIONS = "options, labels and variables"
    READ = "what is read from the store"


EFFECTS: Final[Mapping[Use, Effect]] = {
    Use.CALL: Effect.HOLDS,
    Use.ABANDONED: Effect.HOLDS,
    Use.KEEP_AWAKE: Effect.HOLDS,
    Use.PREVIEW: Effect.HOLDS,
    Use.START: Effect.RENEWS,
    Use.LOG_OUTPUT: Effect.RENEWS,
    Use.FILE_EVENT: Effect.RENEWS,
    Use.PORT_PROBE: Effect.RENEWS,
    Use.PREVIEW_TRAFFIC: Effect.RENEWS,
    Use.RENEWAL: Effect.RENEWS,
    Use.PROCESS: Effect.NOTHING,
    Use.OPEN_WATCH: Effect.NOTHING,
    Use.OPTIONS: Effect.NOTHING,
    Use.READ: Effect.NOTHING,
}


class Activity:
    """When one sandbox was last used, and what uses it now. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self._held = 0

    def note(self, use: Use) -> None:
        """Take note of a *use* that happens now."""
        if EFFECTS[use] is not Effect.NOTHING:
            self.last = time.monotonic()

    @contextmanager
    def during(self, use: Use) -> Iterator[None]:
        """Take note of a *use* that lasts as long as the block."""
        held = EFFECTS[use] is Effect.HOLDS
        self._held += held
        try:
            yield
        finally:
            self._held -= held
            self.note(use)

    def holds(self, others: Iterable[Use] = ()) -> bool:
        """Whether sleep is held off, by what `during` counts or by one of *others*."""
        return self._held > 0 or any(EFFECTS[use] is Effect.HOLDS for use in others)

    def idle(self) -> float:
        """Return the seconds since the last use; 0 while a use lasts."""
        return 0.0 if self._held else time.monotonic() - self.last

    def heard(self, since: float) -> None:
        """Take note of a use *since* seconds ago that another engine told of."""
        self.last = max(self.last, time.monotonic() - max(0.0, since))

    def adopt(self, idle: float) -> None:
        """Take over from an earlier engine that it was idle for *idle* seconds."""
        self.last = time.monotonic() - max(0.0, idle)
