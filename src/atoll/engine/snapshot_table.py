"""The store's table of snapshots. A row is written when its files are kept, and goes before them."""

from collections.abc import Mapping

import msgspec

from atoll.engine.record import InForce
from atoll.engine.store import Store
from atoll.wire.sandbox import SandboxOptions
from atoll.wire.snapshots import Snapshot

_SCAN = 100  # rows a listing reads at once


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot, and what a sandbox that begins as it needs to know of its origin."""

    snapshot: Snapshot
    options: SandboxOptions
    env: dict[str, str | None] = {}
    in_force: InForce


class SnapshotTable:
    """Reads and writes rows; what a call wrote is durable.

    Args:
        store: an open store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, kept: Kept) -> None:
        """Store a new snapshot."""
        told = kept.snapshot
        expires = told.expires_at.timestamp() if told.expires_at else None
        values = (told.namespace, told.id, told.sandbox, expires, msgspec.json.encode(kept))
        await self._store.execute(
            "INSERT INTO snapshots (namespace, id, sandbox, expires_at, body)"
            " VALUES (?, ?, ?, ?, ?)", values,
        )  # fmt: skip

    async def get(self, namespace: str, id: str) -> Kept | None:
        """Return a snapshot, or None."""
        rows = await self._store.read(
            "SELECT body FROM snapshots WHERE namespace = ? AND id = ?", (namespace, id)
        )
        return msgspec.json.decode(rows[0][0], type=Kept) if rows else None

    async def delete(self, id: str) -> None:
        """Forget a snapshot."""
        await self._store.execute("DELETE FROM snapshots WHERE id = ?", (id,))

    async def all(self) -> dict[str, float | None]:
        """Return every id with the unix time of its end."""
        return dict(await self._store.read("SELECT id, expires_at FROM snapshots", ()))

    async def digest(self, id: str) -> str | None:
        """Return the image that a snapshot holds."""
        rows = await self._store.read("SELECT body FROM snapshots WHERE id = ?", (id,))
        return msgspec.json.decode(rows[0][0], type=Kept).in_force.digest if rows else None

    async def page(
        self,
        namespace: str,
        *,
        sandbox: str | None,
        labels: Mapping[str, str],
        after: int,
        limit: int,
    ) -> tuple[list[Snapshot], int | None]:
        """Return snapshots in the order they were taken.

        Args:
            sandbox: only those of this one.
            labels: only those that have all of these.
            after: where the page before ended, 0 for the first.
            limit: most entries.

        Returns:
            The page, and where it ended; None on the last.
        """
        found: list[Snapshot] = []
        ends: list[int] = []
        while True:
            rows = await self._store.read(
                "SELECT number, body FROM snapshots WHERE namespace = ? AND number > ?"
                " AND (? IS NULL OR sandbox = ?) ORDER BY number LIMIT ?",
                (namespace, after, sandbox, sandbox, _SCAN),
            )
            for number, body in rows:
                told = msgspec.json.decode(body, type=Kept).snapshot
                if all(told.labels.get(name) == value for name, value in labels.items()):
                    if len(found) == limit:
                        return found, ends[-1]
                    found.append(told)
                    ends.append(number)
            if len(rows) < _SCAN:
                return found, None
            after = rows[-1][0]
