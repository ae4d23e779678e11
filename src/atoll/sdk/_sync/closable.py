"""What all streams of events have in common: they are iterated, and end with their block."""

from typing import Generic, Self, TypeVar

from atoll.sdk import _io

EventT = TypeVar("EventT")


class ClosableStream(Generic[EventT]):
    """An iterator of events. Closing it early, or leaving its `with` block, ends it."""

    def __init__(self, events: _io.Stream[EventT]) -> None:
        self._events = events

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EventT:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream, and what lives only for it."""
        self._events.close()
