"""The engine's SQLite file: one writer thread with group commit, one reader thread, WAL.

A write is durable when its call returns (`synchronous=FULL`). Writes that wait at the same time share
one commit, so that 50 creates cost a few syncs of the disk and not 50; each runs in its own
savepoint, so that one that fails does not fail the others. On a full disk what is there can still be
changed and removed, with space kept back for that (`ballast`). What is stored: `store`.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

import structlog

from atoll.engine.store import schema
from atoll.engine.store.ballast import Ballast
from atoll.errors import NoSpaceError

log = structlog.get_logger(__name__)

T = TypeVar("T")

MAX_BATCH = 200
"""Writes of one commit; bounds how long the first of them waits for the last."""

Rows = list[Any]
_Job = tuple[Callable[[sqlite3.Connection], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]
_Batch = list[_Job]


class Database:
    """Reads and writes one file; knows nothing of its tables.

    Args:
        path: the file; made when it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ballast = Ballast(path.with_suffix(".ballast"))
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_loop, name="store-writer", daemon=True)
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
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
        # It holds keys of buckets; SQLite gives its other files the mode of this one.
        self._path.touch(mode=0o600)
        self._path.chmod(0o600)
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

    def refuse_full(self) -> None:
        """Raise `NoSpaceError` unless the space kept back is held: nothing new is made without."""
        self._ballast.hold()
        if not self._ballast.held:
            raise _full(self._path)

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
