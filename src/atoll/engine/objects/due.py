"""What a Worker must be told of one object now. Pure.

Nothing is queued: what is due follows from the record and from what was told before. So a hook is
told at least once whatever is killed, and what began and ended while nobody could be told is not
told later: an `on_stop` comes for every start that was told, and for no other.
"""

from typing import NamedTuple

from atoll.engine.objects.table import Row
from atoll.engine.store.record import Record
from atoll.wire.sandbox import State

_ENDED = frozenset({State.CREATED, State.STOPPED, State.DESTROYED})
_RUNS = frozenset({State.RUNNING, State.FROZEN})


class Due(NamedTuple):
    """One thing to tell: a hook, or ``forget`` for a life that is over."""

    what: str
    generation: int


def due(row: Row, record: Record | None) -> Due | None:
    """Return what is due first; None: all was told.

    Args:
        row: the object.
        record: the sandbox as it is now; None when there is none.
    """
    current = None if row.gone else record
    over = current is None or current.state in _ENDED or current.generation != row.started
    if row.started > row.stopped and over:
        return Due("on_stop", row.started)
    if row.gone:
        return Due("forget", 0)
    if current and current.state in _RUNS and current.generation > row.started:
        return Due("on_start", current.generation)
    return None
