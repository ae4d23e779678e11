"""Which lives of sandboxes have an object, and which of their starts and stops were told.

An object's `uid` names its storage. A destroyed sandbox's row stays, `gone`, until the Worker has
been told and has removed that storage; the next life of the id has a row of its own.
"""

import secrets
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from atoll.engine.store.database import Database

Key = tuple[str, str]

_SELECT = "SELECT uid, namespace, id, gone, started, stopped FROM objects"


class Row(NamedTuple):
    """One life. `started`, `stopped`: the last generations whose hooks were told."""

    uid: str
    namespace: str
    id: str
    gone: bool
    started: int
    stopped: int

    @property
    def key(self) -> Key:
        """Namespace and id of the sandbox."""
        return self.namespace, self.id


class Table:
    """The rows.

    Args:
        database: where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ensure(self, key: Key) -> Row:
        """Return the row of the life of today; make it if there is none."""
        if found := await self._live(key):
            return found
        await self._database.execute(
            "INSERT OR IGNORE INTO objects VALUES (?, ?, ?, 0, 0, 0)",
            (secrets.token_hex(12), *key),
        )
        found = await self._live(key)
        return found or await self.ensure(key)

    async def _live(self, key: Key) -> Row | None:
        rows = await self._database.read(
            f"{_SELECT} WHERE namespace = ? AND id = ? AND gone = 0", key
        )
        return _row(rows[0]) if rows else None

    async def lives(self, key: Key) -> list[Row]:
        """Return the rows of an id, those that are gone first."""
        rows = await self._database.read(
            f"{_SELECT} WHERE namespace = ? AND id = ? ORDER BY gone DESC", key
        )
        return [_row(row) for row in rows]

    async def untold(self, namespaces: Iterable[str]) -> set[Key]:
        """Return the ids that something may have to be told of: gone, told to run, or live."""
        found: set[Key] = set()
        for namespace in namespaces:
            rows = await self._database.read(
                "SELECT namespace, id FROM objects WHERE namespace = ?1 AND (gone OR"
                " started > stopped) UNION SELECT namespace, id FROM sandboxes"
                " WHERE namespace = ?1 AND host_ref IS NOT NULL",
                (namespace,),
            )
            found |= {(row[0], row[1]) for row in rows}
        return found

    async def mark_started(self, uid: str, generation: int) -> None:
        """Remember that the start of *generation* was told."""
        await self._database.execute(
            "UPDATE objects SET started = ? WHERE uid = ?", (generation, uid)
        )

    async def mark_stopped(self, uid: str, generation: int) -> None:
        """Remember that the end of *generation* was told."""
        await self._database.execute(
            "UPDATE objects SET stopped = ? WHERE uid = ?", (generation, uid)
        )

    async def bury(self, key: Key) -> None:
        """The life of today is over: its timers go, its storage is to be removed."""

        def bury(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE objects SET gone = 1 WHERE namespace = ? AND id = ?", key)
            connection.execute(
                "DELETE FROM timers WHERE namespace = ? AND id = ? AND kind != 'cron'", key
            )

        await self._database.write(bury)

    async def bury_lost(self) -> None:
        """Bury objects whose sandbox is gone: an engine was killed between the two."""
        await self._database.execute(
            "UPDATE objects SET gone = 1 WHERE gone = 0 AND NOT EXISTS (SELECT 1 FROM sandboxes"
            " WHERE sandboxes.namespace = objects.namespace AND sandboxes.id = objects.id"
            " AND state != 'destroyed')",
            (),
        )

    async def forget(self, uid: str) -> None:
        """Remove a row: nothing of that life is left."""
        await self._database.execute("DELETE FROM objects WHERE uid = ?", (uid,))


def _row(values: tuple[str, str, str, int, int, int]) -> Row:
    uid, namespace, id, gone, started, stopped = values
    return Row(uid, namespace, id, bool(gone), started, stopped)
