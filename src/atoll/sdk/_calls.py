"""Which calls of a Worker wait for what is done here: each task of a method knows its own.

Requests carry them, so that the engine can tell a method that waits for itself from one that
waits for another.
"""

from contextvars import ContextVar

waiting: ContextVar[tuple[str, ...]] = ContextVar("atoll_calls", default=())
"""Ids, outermost first; empty outside of a Worker's sandbox class."""
