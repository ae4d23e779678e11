"""Which state of a sandbox may follow which. Data, so that a reader sees all of it at once.

``created`` and ``stopped`` own nothing but files; ``starting``, ``running``, ``frozen`` and
``stopping`` own a `host_ref`; ``destroyed`` is a tombstone that keeps the generation, so that a
later sandbox of the same id never answers to an old handle.
"""

from collections.abc import Mapping
from typing import Final

from atoll.wire.sandbox import State

NEXT: Final[Mapping[State, frozenset[State]]] = {
    State.CREATED: frozenset({State.STARTING, State.RUNNING, State.STOPPED, State.DESTROYED}),
    State.STARTING: frozenset({State.RUNNING, State.CREATED, State.STOPPED, State.DESTROYED}),
    State.RUNNING: frozenset({State.FROZEN, State.STOPPING, State.STOPPED, State.DESTROYED}),
    State.FROZEN: frozenset({State.RUNNING, State.STOPPING, State.STOPPED, State.DESTROYED}),
    State.STOPPING: frozenset({State.STOPPED, State.DESTROYED}),
    State.STOPPED: frozenset({State.STARTING, State.DESTROYED}),
    State.DESTROYED: frozenset({State.CREATED, State.STARTING, State.RUNNING}),
}
"""`starting` falls back to where it came from when a start fails; `running` goes to `stopped`
without `stopping` when the container ended by itself. What never ran is `running` at once when it
gets a warm container, and `stopped` when it gets the files of a snapshot."""

LIVE: Final = frozenset({State.STARTING, State.RUNNING, State.FROZEN, State.STOPPING})
"""States that own a container, or may own one after a crash; they count for admission."""


def may_follow(now: State, then: State) -> bool:
    """Whether a record may go from *now* to *then*; staying where it is always may."""
    return now is then or then in NEXT[now]
