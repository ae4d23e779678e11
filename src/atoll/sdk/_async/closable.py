"""What all streams of events have in common: they are iterated, and end with their block."""

from typing import Generic, Self, TypeVar

from atoll.sdk import _aio

EventT = TypeVar("EventT")


class ClosableStream(Generic[EventT]):
    """An async iterator of events. Closing it early, or leaving its `async with` block, ends it.

    One that is dropped in between is closed when it is collected: so *events* must not hold it.
    """

    _runs = False
    """Whether something runs for this stream only: dropping it is a `ResourceWarning` then."""

    def __init__(self, events: _aio.Stream[EventT]) -> None:
        self._events = events
        self._guarded = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventT:
        if not self._guarded:
            self._guarded = True
            _aio.guard(self, self._events, warn=self._runs)
        return await anext(self._events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the stream, and what lives only for it."""
        await self._events.aclose()
