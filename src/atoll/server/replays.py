"""Idempotency keys: a call that is sent again gets the first one's answer and changes nothing.

Commands are not handled here: the agent knows their ids, also after the engine was started again.
This is memory of one engine, for calls with a JSON answer; it lasts as long as a client would
reasonably try again.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

import msgspec

from atoll.errors import IdempotencyConflictError, SandboxError, from_wire

KEEP = 600.0
"""Seconds an answer is kept, like the outcome of a command."""

KEEP_COUNT = 10_000
"""Answers kept at most; the oldest go first."""

KEEP_BYTES = 16 << 20
"""Bytes of all kept answers together; the oldest go first."""

Work = Callable[[], Coroutine[Any, Any, bytes]]


def fingerprint(*parts: bytes) -> bytes:
    """Return what tells one request from another without keeping its body."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


class _Call:
    """One call: under way while there is a task, then an answer or an error, as bytes.

    An exception itself is not kept: its traceback holds the request with its body.
    """

    def __init__(self, fingerprint: bytes, began: float, task: "asyncio.Task[bytes]") -> None:
        self.fingerprint = fingerprint
        self.began = began
        self.task: asyncio.Task[bytes] | None = task
        self.answer = b""
        self.failed = False

    def outcome(self) -> bytes:
        if self.failed:
            raise from_wire(msgspec.json.decode(self.answer))
        return self.answer


class Replays:
    """Answers by key.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: OrderedDict[Hashable, _Call] = OrderedDict()
        self._bytes = 0

    async def once(self, key: Hashable, fingerprint: bytes, work: Work) -> bytes:
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
        return await asyncio.shield(call.task) if call.task else call.outcome()

    def _ended(self, key: Hashable, task: "asyncio.Task[bytes]") -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        final = error is None or (isinstance(error, SandboxError) and not error.retryable)
        call = self._calls.get(key)
        if call is None or call.task is not task:
            return
        if not final:
            del self._calls[key]
            return
        if isinstance(error, SandboxError):
            call.answer, call.failed = msgspec.json.encode(error.to_wire(), enc_hook=str), True
        else:
            call.answer = task.result()
        call.task = None
        self._bytes += len(call.answer)
        self._forget()

    def _forget(self) -> None:
        oldest = self._clock() - KEEP
        while self._calls:
            key, call = next(iter(self._calls.items()))
            if len(self._calls) < KEEP_COUNT and (call.began > oldest or call.task):
                break
            self._drop(key)
        if self._bytes > KEEP_BYTES:
            self._shrink()

    def _shrink(self) -> None:
        for key in [key for key, call in self._calls.items() if call.answer]:
            self._drop(key)
            if self._bytes <= KEEP_BYTES:
                return

    def _drop(self, key: Hashable) -> None:
        self._bytes -= len(self._calls.pop(key).answer)
