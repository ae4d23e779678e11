"""A table of things that a namespace keeps and that may end: snapshots, backups.

Rows stay in the order in which they were added; a page ends with the number of its last row.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

import msgspec

from atoll.engine.store.store import Store
from atoll.errors import ValidationFailedError

T = TypeVar("T")

MAX_PAGE = 1_000
"""Most entries of one page of a listing."""

_SCAN = 100  # rows a listing reads at once


class Page(NamedTuple, Generic[T]):
    """Part of a listing; `cursor` continues it, None on the last page."""

    entries: list[T]
    cursor: str | None


class Shelf(Generic[T]):
    """Reads and writes rows of one kind; what a call wrote is durable.

    Args:
        store: an open store.
        table: the table's name.
        kind: what a row holds.
    """

    def __init__(self, store: Store, table: str, kind: type[T]) -> None:
        self._store = store
        self._table = table
        self._kind = kind

    async def add(
        self, namespace: str, id: str, sandbox: str, expires_at: datetime | None, entry: T
    ) -> None:
        """Store a new entry."""
        ends = expires_at.timestamp() if expires_at else None
        await self._store.execute(
            f"INSERT INTO {self._table} (namespace, id, sandbox, expires_at, body)"
            " VALUES (?, ?, ?, ?, ?)",
            (namespace, id, sandbox, ends, msgspec.json.encode(entry)),
        )

    async def get(self, namespace: str, id: str) -> T | None:
        """Return an entry of a namespace, or None."""
        return await self._one("namespace = ? AND id = ?", (namespace, id))

    async def find(self, id: str) -> T | None:
        """Return an entry of whichever namespace, or None."""
        return await self._one("id = ?", (id,))

    async def _one(self, condition: str, values: tuple[str, ...]) -> T | None:
        rows = await self._store.read(f"SELECT body FROM {self._table} WHERE {condition}", values)
        return msgspec.json.decode(rows[0][0], type=self._kind) if rows else None

    async def delete(self, id: str) -> None:
        """Forget an entry."""
        await self._store.execute(f"DELETE FROM {self._table} WHERE id = ?", (id,))

    async def ends(self) -> dict[str, float | None]:
        """Return every id with the unix time of its end."""
        return dict(await self._store.read(f"SELECT id, expires_at FROM {self._table}", ()))

    async def page(
        self,
        namespace: str,
        *,
        sandbox: str | None,
        cursor: str | None,
        limit: int,
        accept: Callable[[T], bool] = lambda _: True,
    ) -> Page[T]:
        """Return entries in the order they were added.

        Args:
            sandbox: only those of this one.
            cursor: of the page before.
            limit: most entries; `MAX_PAGE` at most.
            accept: only those it returns True for.

        Raises:
            ValidationFailedError: *cursor* is none.
        """
        found: list[T] = []
        after, last, limit = _number(cursor), 0, max(1, min(limit, MAX_PAGE))
        while True:
            rows = await self._store.read(
                f"SELECT number, body FROM {self._table} WHERE namespace = ? AND number > ?"
                " AND (? IS NULL OR sandbox = ?) ORDER BY number LIMIT ?",
                (namespace, after, sandbox, sandbox, _SCAN),
            )
            for after, body in rows:
                entry = msgspec.json.decode(body, type=self._kind)
                if accept(entry):
                    if len(found) == limit:
                        return Page(found, str(last))
                    found.append(entry)
                    last = after
            if len(rows) < _SCAN:
                return Page(found, None)


def _number(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > 18:
        raise ValidationFailedError("this is no cursor of a listing", context={"field": "cursor"})
    return int(cursor)
