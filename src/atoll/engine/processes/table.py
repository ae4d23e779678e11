"""The store's table of background processes. An id names one of them; a new start replaces it."""

import sqlite3
from collections.abc import Sequence

import msgspec

from atoll.engine.processes.records import ProcessRecord
from atoll.engine.store.database import Rows
from atoll.engine.store.store import Store

_COLUMNS = (
    "INSERT OR REPLACE INTO processes (uid, namespace, sandbox, id, layer_id, key, live, body)"
)


class ProcessTable:
    """Reads and writes records; what a call wrote is durable.

    Args:
        store: an open store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, owner: tuple[str, str], id: str) -> ProcessRecord | None:
        """Return the process an id names."""
        return _first(await self._where("namespace = ? AND sandbox = ? AND id = ?", (*owner, id)))

    async def started_by(self, owner: tuple[str, str], key: str) -> ProcessRecord | None:
        """Return the process that the call with this idempotency key started."""
        return _first(await self._where("namespace = ? AND sandbox = ? AND key = ?", (*owner, key)))

    async def of(self, owner: tuple[str, str]) -> list[ProcessRecord]:
        """Return all processes of a sandbox, in the order they were started."""
        found = await self._where("namespace = ? AND sandbox = ?", owner)
        return sorted(found, key=lambda record: record.start_time)

    async def owners(self) -> Sequence[tuple[str, str]]:
        """Return the sandboxes that have processes."""
        rows = await self._store.read("SELECT DISTINCT namespace, sandbox FROM processes", ())
        return [(namespace, sandbox) for namespace, sandbox in rows]

    async def put(self, record: ProcessRecord) -> None:
        """Store *record*, in place of the one that has its id."""
        values = (
            record.uid, record.namespace, record.sandbox, record.id, record.layer_id, record.key,
            record.live, msgspec.json.encode(record),
        )  # fmt: skip
        await self._store.execute(f"{_COLUMNS} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    async def delete(self, records: Sequence[ProcessRecord]) -> None:
        """Forget these starts; a later one of the same id stays."""

        def job(connection: sqlite3.Connection) -> None:
            uids = [(record.uid,) for record in records]
            connection.executemany("DELETE FROM processes WHERE uid = ?", uids)

        if records:
            await self._store.write(job)

    async def delete_ownerless(self) -> None:
        """Forget processes whose sandbox was destroyed."""
        await self._store.execute(
            "DELETE FROM processes WHERE layer_id NOT IN"
            " (SELECT layer_id FROM sandboxes WHERE state != 'destroyed')", (),
        )  # fmt: skip

    async def _where(self, condition: str, values: Sequence[str]) -> list[ProcessRecord]:
        rows: Rows = await self._store.read(
            f"SELECT body FROM processes WHERE {condition}",  # noqa: S608 - text of this file
            values,
        )
        return [msgspec.json.decode(body, type=ProcessRecord) for (body,) in rows]


def _first(found: list[ProcessRecord]) -> ProcessRecord | None:
    return found[0] if found else None
