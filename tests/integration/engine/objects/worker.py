"""A Worker process for tests of the engine: answers deliveries as a test says."""

import asyncio
from collections.abc import Callable
from typing import Any, Self

from atoll.engine.engine import Engine
from atoll.errors import SandboxError
from atoll.wire.objects import Answer, AttachWorker, Cancel, ClassOptions, Delivery, WorkerClass

Does = Callable[[Delivery], Any]


class Worker:
    """Attached to *engine* for project ``p``, whose class has namespace ``N``.

    Args:
        engine: an open engine.
        does: returns or raises the outcome of a delivery; may be a coroutine function.
    """

    def __init__(
        self,
        engine: Engine,
        does: Does | None = None,
        *,
        hooks: tuple[str, ...] = ("on_start", "on_stop", "on_error"),
        crons: tuple[str, ...] = (),
        options: ClassOptions | None = None,
    ) -> None:
        self._engine = engine
        self._does = does or (lambda _: None)
        cls = WorkerClass(
            namespace="N", name="Box", methods=["f", "g"], hooks=list(hooks), alarm=True,
            options=options or ClassOptions(),
        )  # fmt: skip
        self._request = AttachWorker(classes=[cls], crons=list(crons))
        self.seen: list[Delivery] = []
        self.cancelled: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._attachment = await self._engine.attach_worker("p", self._request)
        self._tasks.append(asyncio.create_task(self._serve()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._engine.objects.deliveries.detach("p", self._attachment)

    async def _serve(self) -> None:
        async for event in self._attachment.events():
            if isinstance(event, Delivery):
                self.seen.append(event)
                self._tasks.append(asyncio.create_task(self._answer(event)))
            elif isinstance(event, Cancel):
                self.cancelled.append(event.call)

    async def _answer(self, delivery: Delivery) -> None:
        try:
            value = self._does(delivery)
            answer = Answer(value=await value if asyncio.iscoroutine(value) else value)
        except SandboxError as error:
            answer = Answer(error=error.to_wire())
        self._engine.objects.answer("p", delivery.call, answer)

    @property
    def told(self) -> list[str]:
        """Hooks and methods in the order they came."""
        return [delivery.method or delivery.kind for delivery in self.seen]


async def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    """Wait until *condition* holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
