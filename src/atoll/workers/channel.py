"""The worker process's connection to the engine: deliveries in, answers out.

It dials again for ever, so that either side may be replaced. Work that is delivered twice under
one key is done once, as long as this process lives: the second delivery gets the first one's
outcome.
"""

import asyncio
import builtins
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import msgspec

from atoll.errors import (
    InternalError,
    MethodFailedError,
    OperationNotFoundError,
    SandboxError,
    TimeoutError,
)
from atoll.sdk import _shared
from atoll.sdk._async.transport import ConnectionLostError, Transport
from atoll.wire import ops
from atoll.wire.objects import (
    HEARTBEAT,
    Answer,
    Attached,
    AttachWorker,
    Cancel,
    Delivery,
    Superseded,
    WorkerClass,
    WorkerEvent,
)
from atoll.workers.objects import Objects

_log = logging.getLogger("atoll.worker")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
"""Seconds between two tries to reach an engine."""

REMEMBERED = 1_000
"""Outcomes kept for work that is delivered again."""

STOP_SECONDS = 3.0
"""Seconds that calls under way have when this process is to end."""

Scheduled = Callable[[str, str], Awaitable[Any]]


class Channel:
    """Serves the engine's calls.

    Args:
        transport: the way to the engine.
        project: its name.
        classes: what the engine is told.
        crons: likewise.
        objects: does what is delivered for objects.
        scheduled: does what is delivered for crons.
        directory: where storage is kept if the engine does not say.
    """

    def __init__(
        self,
        transport: Transport,
        project: str,
        classes: list[WorkerClass],
        crons: list[str],
        objects: Objects,
        scheduled: Scheduled,
        directory: Path,
    ) -> None:
        self._transport = transport
        self._project = project
        self._classes = classes
        self._crons = crons
        self._objects = objects
        self._scheduled = scheduled
        objects.directory = directory
        self.attached = asyncio.Event()
        """Set once the engine knows this process: only then do its classes answer."""

        self._running: dict[str, tuple[Delivery, asyncio.Task[Answer]]] = {}
        self._outcomes: OrderedDict[str, asyncio.Task[Answer]] = OrderedDict()
        self._answering: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Serve until cancelled, or until another process took this one's place."""
        pause, problem = FIRST_PAUSE, ""
        while True:
            try:
                async with aclosing(self._events()) as events:
                    async for event in events:
                        pause, problem = FIRST_PAUSE, ""
                        if isinstance(event, Superseded):
                            _log.error("another Worker serves %s now", self._project)
                            return
                        self._take(event)
            except (SandboxError, ConnectionLostError) as error:
                if str(error) != problem and not isinstance(error, ConnectionLostError):
                    problem = str(error)
                    _log.warning("the engine does not take the Worker: %s", problem)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _events(self) -> AsyncGenerator[WorkerEvent, None]:
        request = AttachWorker(
            classes=self._classes, crons=self._crons, running=list(self._running)
        )
        call = _shared.build_call(ops.ATTACH_WORKER, {"project": self._project}, request)
        async with self._transport.send(call, timeout=3 * HEARTBEAT) as answer:
            buffer = b""
            async for chunk in answer.aiter_raw():
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    yield msgspec.json.decode(line, type=WorkerEvent)

    def _take(self, event: WorkerEvent) -> None:
        if isinstance(event, Attached):
            if event.objects:
                self._objects.directory = Path(event.objects)
            self.attached.set()
        elif isinstance(event, Delivery):
            task = asyncio.create_task(self._answer(event))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif isinstance(event, Cancel) and (found := self._running.get(event.call)):
            found[1].cancel()
            self._objects.give_up(found[0])

    async def _answer(self, delivery: Delivery) -> None:
        work = self._outcomes.get(delivery.key) if delivery.key else None
        if work is None:
            work = asyncio.create_task(self._done(delivery))
            self._remember(delivery.key, work)
        self._running[delivery.call] = delivery, work
        try:
            await asyncio.wait([work])
            answer = Answer(error=TimeoutError().to_wire()) if work.cancelled() else work.result()
            await self._send(delivery.call, answer)
        finally:
            del self._running[delivery.call]

    def _remember(self, key: str, work: asyncio.Task[Answer]) -> None:
        if key:
            self._outcomes[key] = work
            while len(self._outcomes) > REMEMBERED:
                self._outcomes.popitem(last=False)

    async def _done(self, delivery: Delivery) -> Answer:
        try:
            if delivery.kind == "cron":
                await self._scheduled(*delivery.args)
                return Answer()
            return Answer(value=await self._objects.run(delivery))
        except SandboxError as error:
            return Answer(error=_sendable(error))
        except Exception as error:  # noqa: BLE001 - a call ends with an answer, whatever happens
            _log.exception("call failed")
            return Answer(error=InternalError(f"the worker process failed: {error}").to_wire())

    async def _send(self, call: str, answer: Answer) -> None:
        params = {"project": self._project, "call": call}
        for _ in range(3):
            try:
                await self._transport.call(ops.ANSWER_CALL, params, answer)
                return
            except OperationNotFoundError:
                return  # nobody waits any more; an engine that wants to know delivers it again
            except SandboxError as error:
                _log.warning("an answer was not taken: %s", error)
                if not error.retryable:
                    answer = Answer(error=_untaken(error).to_wire())
                await asyncio.sleep(FIRST_PAUSE)

    async def close(self) -> None:
        """Let calls under way end for a moment, then give them up."""
        with suppress(builtins.TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                if self._answering:
                    await asyncio.wait(self._answering)
                await self._objects.finished()
        for task in self._answering:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._answering, return_exceptions=True)
        self._objects.close()


def _untaken(error: SandboxError) -> SandboxError:
    """Return what the caller is told, who would else wait for an answer that never comes."""
    return MethodFailedError(
        f"what it returned cannot be sent: {error}", context={"code": error.code}
    )


def _sendable(error: SandboxError) -> dict[str, Any]:
    """Return the envelope of *error*; user code may have put anything into its context."""
    wire = error.to_wire()
    try:
        msgspec.json.encode(wire)
    except (TypeError, ValueError):
        wire["context"] = {name: str(value) for name, value in error.context.items()}
    return wire
