"""For whom a request is made: the calls of Workers that wait for it, and the engine itself.

What a method or hook of an object asks for must not wait for that same method or hook.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from atoll.wire.objects import MAX_CALLS

_calls: ContextVar[tuple[str, ...]] = ContextVar("calls", default=())
_preparing: ContextVar[bool] = ContextVar("preparing", default=False)


def calls() -> tuple[str, ...]:
    """Return the calls that wait for what is done here, outermost first."""
    return _calls.get()


def is_preparing() -> bool:
    """Whether the engine itself does this as part of a start."""
    return _preparing.get()


def note(header: str | None) -> None:
    """Remember whom this request is for. Its task is its own, so this ends with it."""
    found = tuple(id for id in (header or "").split(",") if id)
    _calls.set(found[: MAX_CALLS + 1])


@contextmanager
def preparing() -> Iterator[None]:
    """Mark what is done in the block as part of a start."""
    token = _preparing.set(True)
    try:
        yield
    finally:
        _preparing.reset(token)
