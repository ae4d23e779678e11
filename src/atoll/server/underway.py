"""The requests that are under way: who sent them, what they are, and how a stop ends them.

At a stop no new request begins. Calls that change something get time to end; streams do not, as
their callers attach again to the next engine and go on where they were. What is cut before its
answer began is told so: a stream that it may be sent again, a call that its outcome is not known.
Waits (`Op.waits`) get no time: they change nothing, and may be for long.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from atoll.errors import ContainerNotReadyError, OperationInterruptedError, SandboxError
from atoll.host.budget import Budget
from atoll.server.auth import Caller
from atoll.wire.ops import Op

STREAM_GRACE = 1.0
"""Seconds in which streams may end by themselves at a stop."""


class Call:
    """One request, from its authentication to the end of its answer."""

    def __init__(self, id: str, caller: Caller, budget: Budget, idle: float) -> None:
        self.id = id
        self.caller = caller
        self.budget = budget
        self.idle = idle
        self.op: Op[Any, Any] | None = None
        self.target: dict[str, str] = {}
        self.resumable = False
        self.code: str | None = None
        self._among: Underway | None = None
        self._task: asyncio.Task[Any] | None = None
        self._why: SandboxError | None = None
        self._waiting = False

    def begin(self, op: Op[Any, Any], target: dict[str, str], *, resumable: bool) -> None:
        """Say what the request asks for."""
        self.op, self.target, self.resumable = op, target, resumable

    def cut(self, why: SandboxError) -> None:
        """End the request; *why* is its answer if that has not begun."""
        if self._task and self._why is None:
            self._why = why
            self._task.cancel()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark the call as one that only waits for something.

        Raises:
            ContainerNotReadyError: the engine is stopping.
        """
        if self._among and self._among.stopping:
            raise stopping()
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    @property
    def waits(self) -> bool:
        """Whether it only waits now."""
        return self._waiting

    def end_others(self, caller: str) -> None:
        """End everything else that the key *caller* has under way: it was revoked."""
        for call in list(self._among.calls if self._among else ()):
            if call.caller.id == caller and call is not self:
                call.cut(OperationInterruptedError("the key was revoked"))

    def join(self, among: "Underway") -> None:
        """Say which others there are."""
        self._among = among

    @property
    def cut_by(self) -> SandboxError | None:
        """Why it was cut, if it was."""
        return self._why

    @contextmanager
    def running(self) -> Iterator[None]:
        """Mark this task as the one to cut. Being cut is an error, not a cancellation."""
        self._task = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if self._why is None or self._task is None:
                raise
            self._task.uncancel()
            raise self._why from None
        finally:
            self._task = None


class Underway:
    """All requests of one engine's listeners."""

    def __init__(self) -> None:
        self.calls: set[Call] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.stopping = False

    @contextmanager
    def entered(self, call: Call) -> Iterator[None]:
        """Count *call* while it is under way.

        Raises:
            ContainerNotReadyError: the engine is stopping; nothing was done.
        """
        if self.stopping:
            raise stopping()
        call.join(self)
        self.calls.add(call)
        self._empty.clear()
        try:
            with call.running():
                yield
        finally:
            self.calls.discard(call)
            if not self.calls:
                self._empty.set()

    async def drain(self, seconds: float) -> None:
        """Begin nothing any more; return when all has ended, cut or by itself.

        Args:
            seconds: how long calls may take that cannot be resumed.
        """
        self.stopping = True
        self._cut(lambda call: call.waits)
        await self._wait(min(STREAM_GRACE, seconds))
        self._cut(lambda call: call.resumable)
        await self._wait(max(0.0, seconds - STREAM_GRACE))
        for call in list(self.calls):
            call.cut(OperationInterruptedError(
                "the engine was stopped before the call ended",
                suggestion="it is not known whether it was done; look before trying again",
            ))  # fmt: skip
        await self._wait(STREAM_GRACE)

    def _cut(self, chosen: Callable[[Call], bool]) -> None:
        for call in filter(chosen, list(self.calls)):
            call.cut(stopping())

    async def _wait(self, seconds: float) -> None:
        await asyncio.wait({waiting := asyncio.ensure_future(self._empty.wait())}, timeout=seconds)
        waiting.cancel()


def stopping() -> ContainerNotReadyError:
    """Return what a request is told that came while the engine stops."""
    return ContainerNotReadyError("the engine is stopping; nothing was done", retry_after=1.0)
