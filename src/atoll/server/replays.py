"""Idempotency keys: a call that is sent again gets the first one's answer and changes nothing.

Commands are not handled here: the agent knows their ids, also after the engine was started again.
This is memory of one engine, for calls with a JSON answer; it lasts as long as a client would
reasonably try again.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, NamedTuple

from atoll.errors import IdempotencyConflictError, SandboxError

KEEP = 600.0
"""Seconds an answer is kept, like the outcome of a command."""

KEEP_COUNT = 10_000
"""Answers kept at most; the oldest go first."""


class _Call(NamedTuple):
    fingerprint: Hashable
    began: float
    task: "asyncio.Task[Any]"


class Replays:
    """Answers by key.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: OrderedDict[Hashable, _Call] = OrderedDict()

    async def once(
        self, key: Hashable, fingerprint: Hashable, work: Callable[[], Coroutine[Any, Any, Any]]
    ) -> Any:
        """Return what *work* returns, or what it returned for an earlier call with this key.

        The work goes on when its caller leaves: who sends the call again gets the outcome. An
        error that may not come again is not kept.

        Raises:
            IdempotencyConflictError: the key belongs to a call with another *fingerprint*.
        """
        self._forget()
        call = self._calls.get(key)
        if call is None:
            task = asyncio.create_task(work())
            call = self._calls[key] = _Call(fingerprint, self._clock(), task)
            task.add_done_callback(lambda done: self._ended(key, done))
        elif call.fingerprint != fingerprint:
            raise IdempotencyConflictError(
                "the idempotency key was used for another request",
                suggestion="use a fresh key for each call",
            )
        return await asyncio.shield(call.task)

    def _ended(self, key: Hashable, task: "asyncio.Task[Any]") -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        final = error is None or (isinstance(error, SandboxError) and not error.retryable)
        if not final:
            self._calls.pop(key, None)

    def _forget(self) -> None:
        oldest = self._clock() - KEEP
        while self._calls:
            key, call = next(iter(self._calls.items()))
            if len(self._calls) < KEEP_COUNT and (call.began > oldest or not call.task.done()):
                return
            del self._calls[key]
