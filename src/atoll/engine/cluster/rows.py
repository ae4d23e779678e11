"""The replica's copy of all rows, in memory, and which objects a write changes.

A write is tried on the copy and taken back at once: what it would make of each object is sent to the
cluster first, and comes into the copy as what the cluster has. So nobody reads what is not stored.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from atoll.engine.cluster.documents import TABLES, TOPICS, Key, Rows
from atoll.engine.store import schema
from atoll.errors import NotSupportedByRuntimeError

T = TypeVar("T")

_OTHERS = ("warm", "objects", "timers", "projects", "classes", "snapshots", "backups", "mounts",
           "volumes", "tunnels", "secrets")  # fmt: skip
"""What replicas cannot share."""


class Tried(NamedTuple):
    """What a write returned, and what it makes of the objects it changes."""

    value: Any
    changed: dict[Key, Rows]  # without rows: the object goes


class Copy:
    """All rows, in the tables of `atoll.engine.store.schema`."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect(":memory:", isolation_level=None)
        schema.migrate(self._rows)
        self._rows.execute("CREATE TEMP TABLE touched (topic TEXT, a TEXT, b TEXT)")
        for table, topic in TABLES.items():
            self._record_touches(table, topic, TOPICS[topic][table])

    def _record_touches(self, table: str, topic: str, key: tuple[str, ...]) -> None:
        for event, seen in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
            parts = [f"{seen}.{column}" for column in key] + ["NULL"] * (2 - len(key))
            self._rows.execute(
                f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN"
                f" INSERT INTO touched VALUES ('{topic}', {', '.join(parts)}); END"
            )

    def close(self) -> None:
        """Forget all of it."""
        self._rows.close()

    def read(self, sql: str, values: Any) -> list[Any]:
        """Return the rows of a query."""
        return self._rows.execute(sql, values).fetchall()

    def look(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return what *query* finds; it changes nothing."""
        return query(self._rows)

    def attempt(self, job: Callable[[sqlite3.Connection], T]) -> Tried:
        """Run *job*; return what it did, undone.

        Raises:
            NotSupportedByRuntimeError: it wrote what replicas cannot share.
        """
        self._rows.execute("DELETE FROM touched")
        before = self._counts()
        self._rows.execute("BEGIN")
        try:
            value = job(self._rows)
            if self._counts() != before:
                raise NotSupportedByRuntimeError(
                    "replicas of an engine do not share this", context={"runtime": "kubernetes"}
                )
            touched = self._rows.execute("SELECT DISTINCT topic, a, b FROM touched").fetchall()
            keys = [Key(topic, (a,) if b is None else (a, b)) for topic, a, b in touched]
            return Tried(value, {key: self._of(key) for key in keys})
        finally:
            self._rows.execute("ROLLBACK")

    def put(self, key: Key, rows: Rows) -> None:
        """Make *rows* all that there is of an object."""
        self._rows.execute("BEGIN")
        for table, columns in TOPICS[key.topic].items():
            self._rows.execute(f"DELETE FROM {table} WHERE {_named(columns)}", key.parts)
            known = self._columns(table)
            for row in rows.get(table, ()):
                given = [name for name in row if name in known]
                marks = ", ".join("?" * len(given))
                self._rows.execute(
                    f"INSERT INTO {table} ({', '.join(given)}) VALUES ({marks})",
                    [row[name] for name in given],
                )
        self._rows.execute("COMMIT")

    def _of(self, key: Key) -> Rows:
        found: Rows = {}
        for table, columns in TOPICS[key.topic].items():
            names = self._columns(table)
            sql = f"SELECT {', '.join(names)} FROM {table} WHERE {_named(columns)}"
            rows = self._rows.execute(sql, key.parts).fetchall()
            if rows:
                found[table] = [dict(zip(names, row, strict=True)) for row in rows]
        return found

    def _columns(self, table: str) -> list[str]:
        return [row[1] for row in self._rows.execute(f"PRAGMA table_info({table})")]

    def _counts(self) -> list[int]:
        counted = (f"SELECT count(*) FROM {table}" for table in _OTHERS)
        return [self._rows.execute(sql).fetchone()[0] for sql in counted]


def _named(columns: tuple[str, ...]) -> str:
    return " AND ".join(f"{column} = ?" for column in columns)
