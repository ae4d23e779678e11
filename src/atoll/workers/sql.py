"""``ctx.storage.sql``: SQL on the object's own database, with the results the platform gives."""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from atoll.errors import ValidationFailedError

PREFIX = "_atoll_"
"""Tables whose names begin so are ours."""

_FORBIDDEN = {
    sqlite3.SQLITE_TRANSACTION: "transactions are made with storage.transaction",
    sqlite3.SQLITE_SAVEPOINT: "transactions are made with storage.transaction",
    sqlite3.SQLITE_ATTACH: "an object has one database",
    sqlite3.SQLITE_DETACH: "an object has one database",
    sqlite3.SQLITE_PRAGMA: "the database's settings are not yours",
}
_READABLE = frozenset({"table_info", "table_list", "table_xinfo", "index_list", "index_info"})


class SqlCursor:
    """The rows of a statement, all read already: dictionaries by column name."""

    def __init__(self, names: list[str], rows: list[tuple[Any, ...]], written: int) -> None:
        self.column_names = names
        self.rows_read = len(rows)
        self.rows_written = written
        self._rows = iter(rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self._rows:
            yield dict(zip(self.column_names, row, strict=True))

    def to_array(self) -> list[dict[str, Any]]:
        """Return the remaining rows."""
        return list(self)

    def one(self) -> dict[str, Any]:
        """Return the only row.

        Raises:
            ValidationFailedError: there is none, or more than one.
        """
        rows = list(self)
        if len(rows) != 1:
            raise ValidationFailedError(f"expected exactly one row, there are {len(rows)}")
        return rows[0]

    def raw(self) -> Iterator[tuple[Any, ...]]:
        """Yield the remaining rows as tuples."""
        return self._rows


class Sql:
    """Runs statements of the user.

    Args:
        connection: returns the connection, inside a transaction.
    """

    def __init__(self, connection: Callable[[], sqlite3.Connection]) -> None:
        self._connection = connection

    def exec(self, query: str, *bindings: Any) -> SqlCursor:
        """Run one statement, or several divided by semicolons; return the rows of the last.

        Args:
            query: SQL of SQLite; ``?`` stands for a binding.
            bindings: None, bool, int, float, str or bytes, for the last statement.

        Raises:
            ValidationFailedError: the statement is wrong or not allowed; the message is SQLite's.
        """
        connection = self._connection()
        statements = split(query)
        if not statements:
            raise ValidationFailedError("there is no SQL statement", context={"sql": query[:200]})
        guard = _Guard()
        connection.set_authorizer(guard)
        try:
            for statement in statements[:-1]:
                connection.execute(statement)
            cursor = connection.execute(statements[-1], bindings)
            rows = cursor.fetchall()
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            reason = guard.reason or str(error)
            raise ValidationFailedError(f"SQL: {reason}", context={"sql": query[:1000]}) from error
        finally:
            connection.set_authorizer(None)
        names = [column[0] for column in cursor.description or ()]
        return SqlCursor(names, rows, max(0, cursor.rowcount))

    @property
    def database_size(self) -> int:
        """Size of the database in bytes."""
        connection = self._connection()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        return int(pages) * int(size)


class _Guard:
    def __init__(self) -> None:
        self.reason = ""

    def __call__(self, action: int, name: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_PRAGMA and (name or "") in _READABLE:
            return sqlite3.SQLITE_OK
        if action in _FORBIDDEN:
            self.reason = f"not allowed: {_FORBIDDEN[action]}"
            return sqlite3.SQLITE_DENY
        if PREFIX in (name or "").lower() and action != sqlite3.SQLITE_FUNCTION:
            self.reason = f"not allowed: {name} is not yours"
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


def split(query: str) -> list[str]:
    """Return the statements of *query*: semicolons in text, comments and triggers divide nothing."""
    found, start = [], 0
    for end, letter in enumerate(query, start=1):
        if letter == ";" and sqlite3.complete_statement(query[start:end]):
            found.append(query[start:end])
            start = end
    found.append(query[start:])
    return [statement for statement in found if _says_something(statement)]


def _says_something(statement: str) -> bool:
    lines = [line.partition("--")[0].strip() for line in statement.splitlines()]
    return any(line not in {"", ";"} for line in lines)
