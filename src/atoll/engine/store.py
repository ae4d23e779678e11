"""SQLite store: one writer thread with group commit, one reader thread, WAL, `synchronous=FULL`.

A write is durable when its call returns. Writes that wait at the same time share one commit, so
that 50 creates cost a few syncs of the disk and not 50; each runs in its own savepoint, so that
one that fails does not fail the others. On a full disk nothing new is created; what is there can
still be changed and removed, with space kept back for that (`ballast`).
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import msgspec
import structlog

from atoll.engine import schema
from atoll.engine.ballast import Ballast
from atoll.engine.directory import ConflictError, Page
from atoll.engine.record import Record
from atoll.errors import NoSpaceError
from atoll.wire.sandbox import NamespaceConfig, State

log = structlog.get_logger(__name__)

T = TypeVar("T")

MAX_BATCH = 200
"""Writes of one commit; bounds how long the first of them waits for the last."""

_SCAN = 50  # rows a listing reads at once: each may have a megabyte of variables
_PAGE_BYTES = 4 << 20  # of records, after which a page ends whatever its limit

_FLOOR = "forgotten_generation"

Records = list[Record]
Rows = list[Any]
_Job = tuple[Callable[[sqlite3.Connection], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]
_Batch = list[_Job]


class Store:
    """Implements `Directory`, and keeps what else must survive: namespaces, sessions, keys.

    Args:
        path: the database file; made when it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ballast = Ballast(path.with_suffix(".ballast"))
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_loop, name="store-writer", daemon=True)
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        self._watchers: set[asyncio.Queue[Record]] = set()
        self._writer: sqlite3.Connection
        self._reader: sqlite3.Connection

    async def open(self) -> Self:
        """Open and migrate the file.

        Raises:
            VersionMismatchError: a newer Atoll wrote it.
            NoSpaceError: the disk is full.
        """
        try:
            await asyncio.to_thread(self._connect)
        except sqlite3.Error as error:
            raise _typed(error, self._path) from error
        self._thread.start()
        return self

    def _connect(self) -> None:
        self._writer = _connection(self._path)
        try:
            schema.migrate(self._writer)
        except BaseException:
            self._writer.close()
            raise
        self._reader = _connection(self._path)
        self._reader.execute("PRAGMA query_only = ON")
        self._ballast.hold()

    async def close(self) -> None:
        """Commit what waits and close the file."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        self._reads.shutdown()
        self._reader.close()
        self._writer.close()

    async def get(self, namespace: str, id: str) -> Record | None:
        """See `Directory.get`."""
        rows = await self.read(
            "SELECT body, version FROM sandboxes WHERE namespace = ? AND id = ?", (namespace, id)
        )
        return _record(rows[0]) if rows else None

    async def create(self, record: Record) -> Record:
        """See `Directory.create`; raise `NoSpaceError` where the disk is full."""

        def insert(connection: sqlite3.Connection) -> Record:
            self._ballast.hold()
            if not self._ballast.held:
                raise _full(self._path)
            generation = record.generation + _floor(connection)
            stored = msgspec.structs.replace(record, version=1, generation=generation)
            try:
                connection.execute(
                    "INSERT INTO sandboxes (namespace, id, state, version, host_ref, layer_id,"
                    " expires_at, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (*stored.key, *_columns(stored)),
                )
            except sqlite3.IntegrityError as error:
                raise ConflictError(f"{record.key} exists") from error
            return stored

        stored = await self.write(insert)
        self._publish(stored)
        return stored

    async def update(self, record: Record) -> Record:
        """See `Directory.update`."""
        stored = msgspec.structs.replace(record, version=record.version + 1)

        def replace(connection: sqlite3.Connection) -> None:
            changed = connection.execute(
                "UPDATE sandboxes SET state = ?, version = ?, host_ref = ?, layer_id = ?,"
                " expires_at = ?, body = ? WHERE namespace = ? AND id = ? AND version = ?",
                (*_columns(stored), *record.key, record.version),
            )
            if changed.rowcount != 1:
                raise ConflictError(f"{record.key} is no longer at version {record.version}")

        await self.write(replace)
        self._publish(stored)
        return stored

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
        """See `Directory.list`."""
        found: Records = []
        size, after = 0, cursor or ""
        while True:
            batch = await self.read(
                "SELECT body, version FROM sandboxes WHERE namespace = ? AND id > ?"
                " AND (state = ? OR (? IS NULL AND state != 'destroyed')) ORDER BY id LIMIT ?",
                (namespace, after, state, state, _SCAN),
            )
            for record, length in ((_record(row), len(row[0])) for row in batch):
                if _has_labels(record, labels or {}, default_labels or {}):
                    size += length
                    if found and (len(found) == limit or size > _PAGE_BYTES):
                        return Page(found, found[-1].id)
                    found.append(record)
            if len(batch) < _SCAN:
                return Page(found, None)
            after = record.id

    async def owners(self) -> Records:
        """Return every record with a host_ref: what a restart must look after."""
        rows = await self.read("SELECT body, version FROM sandboxes WHERE host_ref IS NOT NULL", ())
        return [_record(row) for row in rows]

    async def expired(self, at: float) -> Sequence[tuple[str, str]]:
        """Return the keys whose `ttl` is over at unix time *at*."""
        rows = await self.read(
            "SELECT namespace, id FROM sandboxes WHERE expires_at <= ?"
            " AND state != 'destroyed'", (at,)
        )  # fmt: skip
        return cast("Sequence[tuple[str, str]]", rows)

    async def forget_tombstones(self, at: float) -> int:
        """Remove tombstones that end at unix time *at* or before; return how many.

        The highest of their generations stays behind: whatever is created later goes on above it.
        """

        def forget(connection: sqlite3.Connection) -> int:
            over = "FROM sandboxes WHERE state = 'destroyed' AND expires_at <= ?"
            rows = connection.execute(f"SELECT body, version {over}", (at,)).fetchall()
            if rows:
                highest = max(_record(row).generation for row in rows)
                floor = max(highest, _floor(connection))
                connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_FLOOR, floor))
                connection.execute(f"DELETE {over}", (at,))
            return len(rows)

        return await self.write(forget)

    async def layers(self) -> set[str]:
        """Return the layers that belong to a sandbox."""
        rows = await self.read("SELECT layer_id FROM sandboxes WHERE state != 'destroyed'", ())
        return {row[0] for row in rows}

    async def meta(self, name: str, default: str) -> str:
        """Return a value of the engine's own; store *default* when there is none yet."""

        def get_or_set(connection: sqlite3.Connection) -> str:
            connection.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, default))
            row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
            return str(row[0])

        return await self.write(get_or_set)

    async def namespaces(self) -> dict[str, NamespaceConfig]:
        """Return the configuration of every namespace that has one."""
        rows = await self.read("SELECT name, body FROM namespaces", ())
        return {name: msgspec.json.decode(body, type=NamespaceConfig) for name, body in rows}

    async def configure_namespace(self, name: str, config: NamespaceConfig) -> None:
        """Store the configuration of a namespace."""
        await self.execute(
            "INSERT OR REPLACE INTO namespaces VALUES (?, ?)", (name, msgspec.json.encode(config))
        )

    async def save_sessions(self, namespace: str, id: str, body: bytes) -> None:
        """Keep the exported shell sessions of a sandbox that is going to sleep."""
        await self.execute(
            "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", (namespace, id, body)
        )

    async def sessions(self, namespace: str, id: str) -> bytes | None:
        """Return what `save_sessions` kept, or None."""
        rows = await self.read(
            "SELECT body FROM sessions WHERE namespace = ? AND id = ?", (namespace, id)
        )
        return bytes(rows[0][0]) if rows else None

    async def delete_sessions(self, namespace: str, id: str) -> None:
        """Forget what `save_sessions` kept."""
        await self.execute("DELETE FROM sessions WHERE namespace = ? AND id = ?", (namespace, id))

    async def keys(self) -> Sequence[tuple[str, str, str | None, str]]:
        """Return hash, name, namespace and scope of every API key."""
        rows = await self.read("SELECT hash, name, namespace, scope FROM keys", ())
        return cast("Sequence[tuple[str, str, str | None, str]]", rows)

    async def watch(self) -> AsyncIterator[Record]:
        """See `Directory.watch`."""
        seen: asyncio.Queue[Record] = asyncio.Queue()
        self._watchers.add(seen)
        try:
            while True:
                yield await seen.get()
        finally:
            self._watchers.discard(seen)

    def _publish(self, record: Record) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(record)

    async def execute(self, sql: str, values: Sequence[Any]) -> None:
        """Run one statement that writes; it is durable afterwards."""
        await self.write(lambda connection: connection.execute(sql, values))

    async def read(self, sql: str, values: Sequence[Any]) -> Rows:
        """Return the rows of a query."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._reads, lambda: self._reader.execute(sql, values).fetchall()
        )

    async def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run *job* in a savepoint of the next commit; return its result when it is durable."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._jobs.put((job, done, loop))
        # A cancelled caller does not take the write back: shield keeps the two apart.
        return await asyncio.shield(done)

    def _write_loop(self) -> None:
        while (first := self._jobs.get()) is not None:
            batch: _Batch = [first]
            while len(batch) < MAX_BATCH:
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if job is None:
                    self._jobs.put(None)
                    break
                batch.append(job)
            self._commit(batch)

    def _commit(self, batch: _Batch) -> None:
        try:
            outcomes = self._transaction(batch)
        except sqlite3.Error as error:
            outcomes = [(None, _typed(error, self._path))] * len(batch)
        self._ballast.hold()
        for (_, done, loop), (value, failure) in zip(batch, outcomes, strict=True):
            loop.call_soon_threadsafe(_settle, done, value, failure)

    def _transaction(self, batch: _Batch) -> Rows:
        try:
            return self._try(batch)
        except sqlite3.Error as error:
            if not _means_full(error) or not self._ballast.release():
                raise
        log.warning("the disk is full: space kept back is used", path=str(self._path))
        return self._try(batch)

    def _try(self, batch: _Batch) -> Rows:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            outcomes = [self._run(job) for job, _, _ in batch]
            self._writer.execute("COMMIT")
        except sqlite3.Error:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise
        return outcomes

    def _run(self, job: Callable[[sqlite3.Connection], Any]) -> tuple[Any, Exception | None]:
        self._writer.execute("SAVEPOINT job")
        try:
            value = job(self._writer)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and _means_full(error):
                raise  # ends the whole transaction: SQLite may have rolled it back already
            self._writer.execute("ROLLBACK TO job")
            self._writer.execute("RELEASE job")
            return None, error  # the caller's, not the writer's
        self._writer.execute("RELEASE job")
        return value, None


def _connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


def _means_full(error: sqlite3.Error) -> bool:
    """Whether the disk refused: it says so, or only that a file of the store could not grow."""
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return primary in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}


def _typed(error: sqlite3.Error, path: Path) -> Exception:
    return _full(path) if _means_full(error) else error


def _full(path: Path) -> NoSpaceError:
    return NoSpaceError(
        "the disk of the engine's state directory is full",
        context={"path": str(path.parent)},
        suggestion="free space on that disk, or destroy sandboxes",
    )


def _settle(done: asyncio.Future[Any], value: Any, failure: Exception | None) -> None:
    if done.done():
        return
    if failure:
        done.set_exception(failure)
    else:
        done.set_result(value)


def _columns(record: Record) -> tuple[Any, ...]:
    expires = record.expires_at.timestamp() if record.expires_at else None
    return (
        record.state,
        record.version,
        record.host_ref,
        record.layer_id,
        expires,
        msgspec.json.encode(record),
    )


def _floor(connection: sqlite3.Connection) -> int:
    """Return the highest generation of the tombstones that were forgotten."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (_FLOOR,)).fetchone()
    return int(row[0]) if row else 0


def _record(row: tuple[bytes, int]) -> Record:
    return msgspec.json.decode(row[0], type=Record)


def _has_labels(record: Record, labels: Mapping[str, str], default: Mapping[str, str]) -> bool:
    own = default if record.wanted.labels is None else record.wanted.labels
    return all(own.get(name) == value for name, value in labels.items())
