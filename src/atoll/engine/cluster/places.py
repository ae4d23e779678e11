"""Which sandboxes have the places of a namespace (`max_instances`), for all engines alike.

The places of a namespace are one object, so that taking one is a compare-and-set over all of them. A
place is taken after the start is recorded. So one whose start the directory does not tell of as under
way or running is free again: nobody gives places back, they are freed when one is looked for.
"""

import sqlite3
from collections.abc import Callable

from atoll.engine.store.record import Record

_OVER = (
    "SELECT places.sandbox, places.generation FROM places LEFT JOIN sandboxes"
    " ON sandboxes.namespace = places.namespace AND sandboxes.id = places.sandbox"
    " WHERE places.namespace = ? AND (sandboxes.host_ref IS NULL"
    " OR json_extract(CAST(sandboxes.body AS TEXT), '$.generation') != places.generation)"
)
# What runs without a place started before the namespace had a limit.
_OTHERS = (
    "SELECT count(*) FROM (SELECT sandbox FROM places WHERE namespace = ?1 AND sandbox != ?2"
    " UNION SELECT id FROM sandboxes WHERE namespace = ?1 AND id != ?2"
    " AND state IN ('running', 'frozen', 'stopping'))"
)


def taking(record: Record, limit: int) -> Callable[[sqlite3.Connection], bool]:
    """Return the write that takes a place for a start; whether one of *limit* was free."""

    def take(connection: sqlite3.Connection) -> bool:
        ((others,),) = connection.execute(_OTHERS, record.key).fetchall()
        if others >= limit:
            return False
        row = *record.key, record.generation
        connection.execute("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", row)
        return True

    return take


def over(connection: sqlite3.Connection, namespace: str) -> list[tuple[str, int]]:
    """Return the places whose starts have ended, as sandbox and generation."""
    return connection.execute(_OVER, (namespace,)).fetchall()


def freeing(namespace: str, ended: list[tuple[str, int]]) -> Callable[[sqlite3.Connection], None]:
    """Return the write that frees places that were `over` when all records were known."""

    def free(connection: sqlite3.Connection) -> None:
        connection.executemany(
            "DELETE FROM places WHERE namespace = ? AND sandbox = ? AND generation = ?",
            [(namespace, *one) for one in ended],
        )

    return free
