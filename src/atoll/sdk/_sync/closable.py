"""What all streams of events have in common: they are iterated, and end with their block."""

from typing import Generic, Self, TypeVar

from atoll.sdk import _io

EventT = TypeVar("EventT")


class ClosableStream(Generic[EventT]):
    """An iterator of events. Closing it early, or leaving its `with` block, ends it.

    One that is dropped in between is closed when it is collected: so *events* must not hold it.
    """

    _runs = False
    """Whether something runs for this stream only: dropping it is a `ResourceWarning` then."""

    def __init__(self, events: _io.Stream[EventT]) -> None:
        self._events = events
        self._guarded = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EventT:
        if not self._guarded:
            self._guarded = True
            _io.guard(self, self._events, warn=self._runs)
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream, and what lives only for it."""
        self._events.close()
