"""The interface of the store of records: compare-and-set only, no locks.

SQLite (`store`) implements it on one machine, a custom resource in a cluster. A caller that loses
a race reads again and decides anew.
"""

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol

from atoll.engine.store.record import Record
from atoll.wire.sandbox import State


class ConflictError(Exception):
    """Somebody else changed or created the record first."""


class Page(NamedTuple):
    """Part of a listing in order of id; `cursor` continues it, None on the last page."""

    records: list[Record]
    cursor: str | None


class Directory(Protocol):
    """Records by namespace and id. What a call returned is durable."""

    actor: str
    """Which of several engines this is; of one alone, nothing."""

    async def fresh(self, namespace: str, id: str) -> None:
        """Make sure that `get` returns what is stored now, whoever wrote it."""

    async def get(self, namespace: str, id: str) -> Record | None:
        """Return the record, a tombstone included, or None."""

    async def create(self, record: Record, *, taking: str | None = None) -> Record:
        """Store a new record as version 1; return it as it is stored.

        Its generation goes on above those of forgotten tombstones: a handle never fits two lives.

        Args:
            taking: a warm container that becomes the sandbox's in the same write.

        Raises:
            ConflictError: a record of this id exists, a tombstone included; or *taking* is gone.
        """

    async def update(self, record: Record, *, taking: str | None = None) -> Record:
        """Replace the record whose version is *record.version*; return it with the next version.

        Args:
            taking: as in `create`.

        Raises:
            ConflictError: the stored version is another one, or *taking* is gone.
        """

    async def list(
        self,
        namespace: str,
        *,
        state: State | None = None,
        labels: Mapping[str, str] | None = None,
        default_labels: Mapping[str, str] | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Return up to *limit* records, without tombstones unless *state* asks for them.

        Args:
            labels: only those that have all of these.
            default_labels: what a record without labels of its own has.
        """

    def watch(self) -> AsyncIterator[Record]:
        """Yield every record written from now on, as soon as it is durable."""
