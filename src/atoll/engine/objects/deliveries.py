"""Calls into Workers: handed to the process that attached, answered by it, never waited for ever.

One process is attached for a project; a later one takes its place. A call belongs to the process
it was given to: when that goes, the call is lost unless the same process comes back in time and
says that it still works on it. Everything here is in memory: what must survive an engine is told
again from the store.
"""

import asyncio
import builtins
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from atoll.engine.objects.table import Key
from atoll.errors import (
    OperationInterruptedError,
    OperationNotFoundError,
    SandboxError,
    TimeoutError,
    WorkerUnavailableError,
    from_wire,
)
from atoll.wire.objects import (
    HEARTBEAT,
    Alive,
    Answer,
    AttachWorker,
    Cancel,
    Delivery,
    Superseded,
    WorkerEvent,
)


class LostError(Exception):
    """The Worker process that had the call is gone; whether it was done is not known."""


class Attachment:
    """One attached process: what it is to be told."""

    def __init__(self) -> None:
        self._events: deque[WorkerEvent] = deque()
        self._more = asyncio.Event()
        self.silent = False  # a call timed out and nothing was answered since

    def tell(self, event: WorkerEvent) -> None:
        """Hand over an event."""
        self._events.append(event)
        self._more.set()

    def give_up(self, delivery: Delivery) -> None:
        """Have nobody work on *delivery*, which may still be here: a Worker that is slow reads late."""
        if delivery in self._events:
            self._events.remove(delivery)
        else:
            self.tell(Cancel(call=delivery.call))

    async def events(self) -> AsyncIterator[WorkerEvent]:
        """Yield what is handed over, and signs of life, until another process takes the place."""
        while True:
            event = await self._next()
            yield event
            if isinstance(event, Superseded):
                return

    async def _next(self) -> WorkerEvent:
        try:
            async with asyncio.timeout(HEARTBEAT):
                while not self._events:
                    self._more.clear()
                    await self._more.wait()
        except builtins.TimeoutError:
            return Alive()
        return self._events.popleft()


class _Call:
    def __init__(self, project: str, delivery: Delivery, attachment: Attachment) -> None:
        self.project = project
        self.delivery = delivery
        self.attachment = attachment
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Deliveries:
    """All calls into Workers that nobody has answered yet.

    Args:
        grace: seconds a Worker may be away, as during a reload, before calls fail.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._attached: dict[str, Attachment] = {}
        self._arrived = asyncio.Event()
        self._left: dict[str, float] = {}
        self._opened = time.monotonic()
        self._calls: dict[str, _Call] = {}
        self._handles: list[asyncio.TimerHandle] = []

    # The Worker's side

    def attach(self, project: str, request: AttachWorker) -> Attachment:
        """Make a process the one that is called for *project*."""
        if old := self._attached.get(project):
            old.tell(Superseded())
        attachment = self._attached[project] = Attachment()
        for id, call in list(self._calls.items()):
            if call.project == project:
                if id in request.running:
                    call.attachment = attachment
                else:
                    call.fail(LostError())
        self._arrived.set()
        self._arrived = asyncio.Event()
        return attachment

    def detach(self, project: str, attachment: Attachment) -> None:
        """The process's stream ended. It has a moment to come back."""
        if self._attached.get(project) is attachment:
            del self._attached[project]
            self._left[project] = time.monotonic()
        loop = asyncio.get_running_loop()
        self._handles = [handle for handle in self._handles if handle.when() > loop.time()]
        self._handles.append(loop.call_later(self._grace, self._give_up, attachment))

    def _give_up(self, attachment: Attachment) -> None:
        for call in list(self._calls.values()):
            if call.attachment is attachment:
                call.fail(LostError())

    def answer(self, project: str, id: str, answer: Answer) -> None:
        """Take the outcome of a call.

        Raises:
            OperationNotFoundError: nobody waits for it any more.
        """
        call = self._calls.get(id)
        if call is None or call.project != project or call.answer.done():
            raise OperationNotFoundError(
                f"nobody waits for the call {id!r}", context={"call": id, "project": project}
            )
        call.attachment.silent = False
        if answer.error is not None:
            call.fail(from_wire(answer.error))
        else:
            call.answer.set_result(answer.value)

    # The engine's side

    def attached(self, project: str) -> bool:
        """Whether a process is there."""
        return project in self._attached

    def responsive(self, project: str) -> bool:
        """Whether a process is there and answers."""
        return project in self._attached and not self.silent(project)

    def silent(self, project: str) -> bool:
        """Whether a process is there that did not answer the last call in time, nor one since."""
        found = self._attached.get(project)
        return found is not None and found.silent

    async def call(
        self, project: str, delivery: Delivery, timeout: float, calls: tuple[str, ...] = ()
    ) -> Any:
        """Have *delivery* done and return its value.

        Args:
            project: whose Worker does it.
            delivery: `call` and `calls` are filled in here.
            timeout: seconds it may take.
            calls: the calls that wait for it.

        Nobody waits for a request to be handled whose sender went away, so it is given up then; a method
        is done to its end.

        Raises:
            WorkerUnavailableError: nobody is there; it was not handed over.
            LostError: the process went; it may have been done.
            TimeoutError: no answer in time; the process is told to give up.
            SandboxError: what the Worker's code raised.
        """
        attachment = await self.present(project)
        id = secrets.token_hex(12)
        asked = _with_ids(delivery, id, calls)
        call = self._calls[id] = _Call(project, asked, attachment)
        attachment.tell(asked)
        try:
            async with asyncio.timeout(timeout):
                return await call.answer
        except builtins.TimeoutError as error:
            if isinstance(error, SandboxError):
                raise  # the Worker's own
            call.attachment.silent = True
            call.attachment.give_up(asked)
            raise TimeoutError(
                f"{delivery.method or delivery.kind} of {delivery.namespace}/{delivery.id} did not"
                f" end within {timeout:g} s",
                context={"method": delivery.method, "seconds": timeout},
                suggestion="look into the Worker's output for what it waits for",
            ) from error
        except asyncio.CancelledError:
            if delivery.kind == "outbound":
                call.attachment.give_up(asked)
            raise
        finally:
            del self._calls[id]

    async def present(self, project: str) -> Attachment:
        """Return the process that is there, or comes back in time; raise as `call`."""
        until = self._left.get(project, self._opened) + self._grace
        while project not in self._attached:
            arrived = self._arrived
            try:
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    await arrived.wait()
            except builtins.TimeoutError:
                raise WorkerUnavailableError(
                    f"the Worker {project!r} is not running",
                    context={"project": project},
                    suggestion="start it with `atoll dev`; if it runs, its output says why not",
                    retry_after=1.0,
                ) from None
        return self._attached[project]

    def is_in_hook(self, calls: tuple[str, ...], key: Key) -> bool:
        """Whether one of *calls* is a hook of the object *key* that has not ended."""
        found = [self._calls[id].delivery for id in calls if id in self._calls]
        return any(one.kind == "hook" and (one.namespace, one.id) == key for one in found)

    def close(self) -> None:
        """Nobody waits any more: the engine ends."""
        for handle in self._handles:
            handle.cancel()
        for call in self._calls.values():
            call.fail(LostError())


def _with_ids(delivery: Delivery, id: str, calls: tuple[str, ...]) -> Delivery:
    return msgspec.structs.replace(delivery, call=id, calls=[*calls, id])


def lost(method: str) -> SandboxError:
    """Return the typed error of a call whose Worker went."""
    return OperationInterruptedError(
        f"the Worker ended during {method}: whether it was done is not known",
        context={"method": method, "reason": "worker"},
    )
