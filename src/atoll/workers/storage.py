"""``ctx.storage``: an object's own SQLite file, as keys and values and as SQL.

Nothing here waits for a disk in the middle of the user's code: what is written between two awaits
of other things is one transaction, committed (`synchronous=FULL`) as soon as the code waits, and
before the call is answered or a request of the object is sent. So puts in a row are atomic, a
process killed at any moment loses nothing that anybody heard of, and 50 calls at once that read,
count and write count right.
"""

import asyncio
import inspect
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from atoll.errors import (
    NoSpaceError,
    ResourceBusyError,
    SandboxDestroyedError,
    SandboxError,
    ValidationFailedError,
)
from atoll.sdk import _arguments
from atoll.wire import ops, values
from atoll.wire.base import Duration, Empty
from atoll.wire.objects import SetAlarm
from atoll.workers.gate import Gate
from atoll.workers.sql import PREFIX, Sql

if TYPE_CHECKING:
    from atoll.sdk._async.target import Address

T = TypeVar("T")

MAX_KEY = 2_048
"""Bytes of a key."""

_TABLE = f"{PREFIX}kv"
_CREATE = f"CREATE TABLE IF NOT EXISTS {_TABLE} (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID"
_GET = f"SELECT value FROM {_TABLE} WHERE key = ?"  # noqa: S608 - a constant
_PUT = f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?)"  # noqa: S608
_DELETE = f"DELETE FROM {_TABLE} WHERE key = ?"  # noqa: S608

_current: ContextVar["Transaction | None"] = ContextVar("atoll_transaction", default=None)


class Transaction:
    """The transaction a closure runs in; storage itself is used inside, and takes part in it."""

    def __init__(self) -> None:
        self.rolled_back = False

    def rollback(self) -> None:
        """Undo everything when the closure ends."""
        self.rolled_back = True


class Storage:
    """The storage of one object. Opened with the first use.

    Args:
        file: the database file.
        gate: closed during a transaction.
        address: of the sandbox; its alarm is the engine's.
    """

    def __init__(self, file: Path, gate: Gate, address: "Address") -> None:
        self._file = file
        self._gate = gate
        self._address = address
        self._opened: sqlite3.Connection | None = None
        self._transaction: Transaction | None = None
        self._failure: SandboxError | None = None
        self._gone = False
        self.sql = Sql(self._begun)

    # Keys and values

    async def get(self, key: str | Iterable[str]) -> Any:
        """Return a value (None: there is none), or of several keys those that exist, by key."""
        await self._turn()
        if isinstance(key, str):
            return self._get(key)
        found = {name: self._get(name) for name in key}
        return {name: value for name, value in sorted(found.items()) if value is not None}

    def _get(self, key: str) -> Any:
        row = self._begun().execute(_GET, (_checked(key),)).fetchone()
        return values.decode(json.loads(row[0])) if row else None

    async def put(self, key: str | Mapping[str, Any], value: Any = None) -> None:
        """Store a value, or all values of a mapping at once.

        Raises:
            ValidationFailedError: a value is not data; nothing is stored then.
        """
        entries = {key: value} if isinstance(key, str) else dict(key)
        rows = [
            (_checked(name), json.dumps(values.encode(item, f"the value of {name!r}")))
            for name, item in entries.items()
        ]
        await self._turn()
        self._begun().executemany(_PUT, rows)

    async def delete(self, key: str | Iterable[str]) -> Any:
        """Remove a key, or several; return whether it existed, or how many did."""
        names = [key] if isinstance(key, str) else list(key)
        await self._turn()
        connection = self._begun()
        gone = [connection.execute(_DELETE, (_checked(name),)).rowcount for name in names]
        return bool(sum(gone)) if isinstance(key, str) else sum(gone)

    async def delete_all(self) -> None:
        """Remove all keys and all tables of the object; not its alarm."""
        await self._turn()
        connection = self._begun()
        found = connection.execute(
            "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view', 'trigger')"
            " AND name NOT LIKE 'sqlite_%' AND name != ?", (_TABLE,),
        ).fetchall()  # fmt: skip
        for kind, name in found:
            quoted = name.replace('"', '""')
            connection.execute(f'DROP {kind} IF EXISTS "{quoted}"')
        connection.execute(f"DELETE FROM {_TABLE}")  # noqa: S608 - a constant

    async def list(
        self,
        *,
        prefix: str = "",
        start: str | None = None,
        start_after: str | None = None,
        end: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """Return keys and values in the order of keys.

        Args:
            prefix: only keys that begin so.
            start: from this key on.
            start_after: after this key.
            end: before this key.
            reverse: the last key first.
            limit: how many at most.
        """
        await self._turn()
        rows = self._begun().execute(
            f"SELECT key, value FROM {_TABLE} WHERE substr(key, 1, length(:prefix)) = :prefix"  # noqa: S608
            " AND (:start IS NULL OR key >= :start) AND (:after IS NULL OR key > :after)"
            " AND (:end IS NULL OR key < :end)"
            f" ORDER BY key {'DESC' if reverse else 'ASC'} LIMIT :limit",
            {
                "prefix": prefix, "start": start, "after": start_after, "end": end,
                "limit": -1 if limit is None else limit,
            },
        )  # fmt: skip
        return {key: values.decode(json.loads(value)) for key, value in rows}

    # Transactions

    async def transaction(self, closure: Callable[[Transaction], Any]) -> Any:
        """Run *closure*, which may await, alone on this object; all of it is stored, or nothing.

        Args:
            closure: a function, async or not; it gets the `Transaction`. What it raises is raised
                here, after everything was undone.
        """
        async with self._gate.held():
            inside = _current.get()
            if inside is not None and inside is self._transaction:
                return await _called(closure, inside)  # nested: part of the outer one
            self.flush()
            made = self._transaction = Transaction()
            token = _current.set(made)
            try:
                connection = self._connection()
                connection.execute("BEGIN IMMEDIATE")
                result = await _called(closure, made)
                self._end(connection, "ROLLBACK" if made.rolled_back else "COMMIT")
                return result
            except BaseException:
                self._end(self._connection(), "ROLLBACK")
                raise
            finally:
                _current.reset(token)
                self._transaction = None

    def transaction_sync(self, closure: Callable[[], T]) -> T:
        """Run *closure*, which does not await; all of it is stored, or nothing."""
        connection = self._begun()
        connection.execute("SAVEPOINT closure")
        try:
            result = closure()
        except BaseException:
            connection.execute("ROLLBACK TO closure")
            connection.execute("RELEASE closure")
            raise
        connection.execute("RELEASE closure")
        return result

    def _end(self, connection: sqlite3.Connection, how: str) -> None:
        if not connection.in_transaction:  # SQLite has rolled back by itself
            return
        try:
            connection.execute(how)
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise _typed(error, self._file) from error

    async def sync(self) -> None:
        """Return when everything that was written is on the disk."""
        await self._turn()
        self.flush()

    async def _turn(self) -> None:
        """Wait while the transaction of another call is open."""
        while self._foreign:
            await self._gate.pass_through()

    @property
    def _foreign(self) -> bool:
        return self._transaction is not None and self._transaction is not _current.get()

    # The file

    def _begun(self) -> sqlite3.Connection:
        """Return the connection inside a transaction, which ends when the code waits."""
        if self._foreign:
            raise ResourceBusyError(
                "another call of this object has a transaction open",
                suggestion="await storage.sync() before SQL, or use SQL in a transaction too",
            )
        connection = self._connection()
        if not connection.in_transaction:
            connection.execute("BEGIN")
            with suppress(RuntimeError):  # without a loop, as in tests, `flush` is called
                asyncio.get_running_loop().call_soon(self._commit)
        return connection

    def _connection(self) -> sqlite3.Connection:
        if self._gone:
            raise SandboxDestroyedError("the sandbox was destroyed, and its storage with it")
        if self._opened is None:
            try:
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._opened = _open(self._file)
            except (sqlite3.Error, OSError) as error:
                raise _typed(error, self._file) from error
        return self._opened

    def _commit(self) -> None:
        try:
            self.flush()
        except SandboxError as error:
            self._failure = error

    def flush(self) -> None:
        """Commit what was written outside of a transaction.

        Raises:
            SandboxError: it cannot be stored, or could not before: it is undone.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._opened is not None and self._transaction is None:
            self._end(self._opened, "COMMIT")

    def destroy(self) -> None:
        """Remove the file: the sandbox is destroyed. Code that still runs cannot use it any more."""
        self._gone = True
        self.close()
        remove(self._file)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    # The alarm is the engine's: it fires also when this process is gone.

    async def set_alarm(self, when: datetime | Duration) -> None:
        """Have `alarm` called at a time, or after so long; it replaces the one that is set.

        Args:
            when: a time with a time zone, or how long from now: a number is seconds.

        Raises:
            ValidationFailedError: a time without a time zone, or a delay of more than 10 years.
        """
        at, delay = _arguments.later(when)
        at = at or datetime.now(UTC) + timedelta(milliseconds=delay or 0)
        await self._call(ops.SET_ALARM, SetAlarm(at=at))

    async def get_alarm(self) -> datetime | None:
        """Return when the alarm is due; None: none is set, or it is being called."""
        found: datetime | None = (await self._call(ops.GET_ALARM, Empty())).at
        return found

    async def delete_alarm(self) -> None:
        """Remove the alarm, if one is set."""
        await self._call(ops.DELETE_ALARM, Empty())

    async def _call(self, op: Any, request: Any) -> Any:
        await self._address.ensure()
        return await self._address.transport.call(op, self._address.params, request)


def remove(file: Path) -> None:
    """Remove the database *file* with its journals."""
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


def _open(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(_CREATE)
    return connection


async def _called(closure: Callable[[Transaction], Any], transaction: Transaction) -> Any:
    result = closure(transaction)
    return await result if inspect.isawaitable(result) else result


def _checked(key: str) -> str:
    if not isinstance(key, str) or not 0 < len(key.encode(errors="replace")) <= MAX_KEY:
        raise ValidationFailedError(
            f"a key is text of 1 to {MAX_KEY} bytes", context={"field": "key", "key": str(key)[:80]}
        )
    return key


def _typed(error: Exception, file: Path) -> SandboxError:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return NoSpaceError(
            "the disk with the object's storage is full", context={"file": file.name}
        )
    return ResourceBusyError(f"the object's storage failed: {error}", context={"file": file.name})
