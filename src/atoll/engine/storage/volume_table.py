"""The store's table of volumes."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from atoll.engine.store.database import Database

MAX_PAGE = 1_000
"""Most entries of one page of a listing."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One volume. Size in bytes."""

    name: str
    namespace: str
    layer_id: str
    size: int
    read_only: bool
    shared: bool
    private: bool = False
    created_at: datetime


class VolumeTable:
    """Reads and writes volumes; what a call wrote is durable.

    Args:
        database: where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, volume: Stored) -> None:
        """Store a new volume; its name is not taken."""
        values = volume.namespace, volume.name, volume.layer_id, msgspec.json.encode(volume)
        await self._database.execute(
            "INSERT INTO volumes (namespace, name, layer_id, body) VALUES (?, ?, ?, ?)", values
        )

    async def get(self, namespace: str, name: str) -> Stored | None:
        """Return the volume of this name, or None."""
        rows = await self._database.read(
            "SELECT body FROM volumes WHERE namespace = ? AND name = ?", (namespace, name)
        )
        return _decoded(rows)[0] if rows else None

    async def delete(self, layer_id: str) -> None:
        """Forget a volume."""
        await self._database.execute("DELETE FROM volumes WHERE layer_id = ?", (layer_id,))

    async def replace(self, old: Stored, new: Stored) -> None:
        """Store *new*, of the same name, in place of *old*."""
        values = new.layer_id, msgspec.json.encode(new), old.layer_id
        await self._database.execute(
            "UPDATE volumes SET layer_id = ?, body = ? WHERE layer_id = ?", values
        )

    async def page(self, namespace: str, after: str, limit: int) -> tuple[list[Stored], str | None]:
        """Return the volumes whose names follow *after*, and the last name if there are more."""
        limit = max(1, min(limit, MAX_PAGE))
        rows = await self._database.read(
            "SELECT body FROM volumes WHERE namespace = ? AND name > ? ORDER BY name LIMIT ?",
            (namespace, after, limit + 1),
        )
        found = _decoded(rows[:limit])
        return found, found[-1].name if len(rows) > limit else None

    async def all(self) -> list[Stored]:
        """Return every volume of every namespace."""
        return _decoded(await self._database.read("SELECT body FROM volumes", ()))


def _decoded(rows: Sequence[tuple[bytes, ...]]) -> list[Stored]:
    return [msgspec.json.decode(row[0], type=Stored) for row in rows]
