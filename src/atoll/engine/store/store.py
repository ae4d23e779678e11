"""The store of one machine: sandboxes, namespaces and sessions in the engine's SQLite file."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from atoll.engine.store import events
from atoll.engine.store.database import Database
from atoll.engine.store.directory import ConflictError, Page
from atoll.engine.store.events import Events
from atoll.engine.store.record import Record
from atoll.wire.sandbox import NamespaceConfig, State

_SCAN = 50  # rows a listing reads at once: each may have a megabyte of variables
_PAGE_BYTES = 4 << 20  # of records, after which a page ends whatever its limit

_FLOOR = "forgotten_generation"

Records = list[Record]


class Store(Database):
    """Implements `Directory`, and keeps what else must survive: namespaces, sessions.

    Args:
        path: the database file; made when it is missing.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.events = Events(self)
        self._watchers: set[asyncio.Queue[Record]] = set()
        self.actor = ""

    async def fresh(self, namespace: str, id: str) -> None:
        """See `Directory.fresh`; nobody else writes."""

    async def catch_up(self) -> None:
        """Make sure that what is read next is all that is stored now, whoever wrote it."""

    async def place(self, record: Record, limit: int) -> bool:  # noqa: ARG002
        """Take one of the *limit* places of a namespace for a start that is recorded.

        Returns:
            Whether one was free. An engine that is alone counts by itself (`Admission`).
        """
        return True

    async def get(self, namespace: str, id: str) -> Record | None:
        """See `Directory.get`."""
        rows = await self.read(
            "SELECT body, version FROM sandboxes WHERE namespace = ? AND id = ?", (namespace, id)
        )
        return _record(rows[0]) if rows else None

    async def create(self, record: Record, *, taking: str | None = None) -> Record:
        """See `Directory.create`; raise `NoSpaceError` where the disk is full."""

        def insert(connection: sqlite3.Connection) -> Record:
            self.refuse_full()
            _take(connection, taking)
            generation = record.generation + _floor(connection)
            stored = msgspec.structs.replace(record, version=1, generation=generation)
            try:
                connection.execute(
                    "INSERT INTO sandboxes (namespace, id, state, version, host_ref, layer_id,"
                    " expires_at, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (*stored.key, *_columns(stored)),
                )
                events.append_change(connection, None, stored)
            except sqlite3.IntegrityError as error:
                raise ConflictError(f"{record.key} exists") from error
            return stored

        stored = await self.write(insert)
        self._publish(stored)
        return stored

    async def update(self, record: Record, *, taking: str | None = None) -> Record:
        """See `Directory.update`."""
        stored = msgspec.structs.replace(record, version=record.version + 1)

        def replace(connection: sqlite3.Connection) -> None:
            _take(connection, taking)
            before = _state(connection, record)
            changed = connection.execute(
                "UPDATE sandboxes SET state = ?, version = ?, host_ref = ?, layer_id = ?,"
                " expires_at = ?, body = ? WHERE namespace = ? AND id = ? AND version = ?",
                (*_columns(stored), *record.key, record.version),
            )
            if changed.rowcount != 1:
                raise ConflictError(f"{record.key} is no longer at version {record.version}")
            events.append_change(connection, before, stored)

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

    async def host_refs(self) -> set[str]:
        """Return the name of every start: those of sandboxes, and what is warm."""
        rows = await self.read(
            "SELECT host_ref FROM sandboxes WHERE host_ref IS NOT NULL"
            " UNION SELECT host_ref FROM warm", ()
        )  # fmt: skip
        return {row[0] for row in rows}

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
                events.forget(connection)
            return len(rows)

        return await self.write(forget)

    async def layers(self) -> set[str]:
        """Return the layers of sandboxes, of what is warm, of volumes, and of mounts' clients."""
        rows = await self.read(
            "SELECT layer_id FROM sandboxes WHERE state != 'destroyed'"
            " UNION SELECT layer_id FROM warm UNION SELECT layer_id FROM volumes"
            " UNION SELECT id FROM mounts", ()
        )  # fmt: skip
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
        self.events.announce(record.key)
        for watcher in self._watchers:
            watcher.put_nowait(record)


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


def _take(connection: sqlite3.Connection, host_ref: str | None) -> None:
    """Take a warm container out of the pool; raise `ConflictError` when it is not there."""
    if host_ref is None:
        return
    if connection.execute("DELETE FROM warm WHERE host_ref = ?", (host_ref,)).rowcount != 1:
        raise ConflictError(f"{host_ref} is not warm any more")


def _state(connection: sqlite3.Connection, record: Record) -> str | None:
    row = connection.execute(
        "SELECT state FROM sandboxes WHERE namespace = ? AND id = ?", record.key
    ).fetchone()
    return row[0] if row else None


def _floor(connection: sqlite3.Connection) -> int:
    """Return the highest generation of the tombstones that were forgotten."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (_FLOOR,)).fetchone()
    return int(row[0]) if row else 0


def _record(row: tuple[bytes, int]) -> Record:
    return msgspec.json.decode(row[0], type=Record)


def _has_labels(record: Record, labels: Mapping[str, str], default: Mapping[str, str]) -> bool:
    own = default if record.wanted.labels is None else record.wanted.labels
    return all(own.get(name) == value for name, value in labels.items())
