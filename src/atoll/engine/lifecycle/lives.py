"""Which life of a sandbox a call means: one that was destroyed is not the next of its name.

A handle of what is inside, like a session, says it with each call. Without this the call would
make a new sandbox of that name, or be served by one that somebody else has made.
"""

import hashlib
from contextvars import ContextVar

from atoll.engine.store.record import Record
from atoll.errors import StaleHandleError
from atoll.wire.sandbox import State

_meant: ContextVar[tuple[str, str, str] | None] = ContextVar("life", default=None)


def of(record: Record) -> str:
    """Return what tells the life of *record* from every other one of its id."""
    return hashlib.sha256(record.layer_id.encode()).hexdigest()[:16]


def note(namespace: str, id: str, life: str | None) -> None:
    """Remember which life this request means; None: whichever there is."""
    _meant.set((namespace, id, life) if life else None)


def meant(namespace: str, id: str) -> str | None:
    """Return which life of a sandbox is meant here; None: whichever there is."""
    found = _meant.get()
    return found[2] if found and found[:2] == (namespace, id) else None


def check(id: str, life: str | None, record: Record | None) -> None:
    """Refuse a call that means another life of the sandbox than that of *record*.

    Raises:
        StaleHandleError: that one was destroyed.
    """
    if life is None:
        return
    if record is None or record.state is State.DESTROYED or of(record) != life:
        raise StaleHandleError(
            f"sandbox {id!r} was destroyed since this handle was made",
            context={"sandbox": id},
            suggestion="make what the handle was for again: a later sandbox of the name is empty",
        )
