"""What happened to each sandbox: one row an event, written with the change that it tells of.

A change of state and its event are one commit, so that neither is ever without the other. The last
`KEPT` events of a sandbox are kept, also after its destruction, as long as its tombstone is.
"""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from atoll.engine.store.database import Database
from atoll.engine.store.record import Record
from atoll.wire.sandbox import SandboxEvent

KEPT: Final = 200

PAGE: Final = 100
"""Events read at once."""

Key = tuple[str, str]

_INSERT = (
    "INSERT INTO events SELECT ?1, ?2, coalesce(max(seq), 0) + 1, ?3 FROM events"
    " WHERE namespace = ?1 AND sandbox = ?2 RETURNING seq"
)
_SHORTEN = "DELETE FROM events WHERE namespace = ? AND sandbox = ? AND seq <= ?"
_SELECT = (
    "SELECT seq, body FROM events WHERE namespace = ? AND sandbox = ? AND seq > ?"
    " ORDER BY seq LIMIT ?"
)


def append(connection: sqlite3.Connection, key: Key, event: SandboxEvent) -> None:
    """Add *event*, whose number is given here, in the transaction under way."""
    ((seq,),) = connection.execute(_INSERT, (*key, msgspec.json.encode(event))).fetchall()
    connection.execute(_SHORTEN, (*key, seq - KEPT))


def append_change(connection: sqlite3.Connection, before: str | None, record: Record) -> None:
    """Add the event of a record that went on from the state *before*, unless it is still in it."""
    if before != record.state:
        event = SandboxEvent(
            type=record.state,
            at=record.state_changed_at or record.created_at,
            generation=record.generation,
            reason=record.reason,
        )
        append(connection, record.key, event)


def forget(connection: sqlite3.Connection) -> None:
    """Remove the events of sandboxes without a row, in the transaction under way."""
    connection.execute(
        "DELETE FROM events WHERE NOT EXISTS (SELECT 1 FROM sandboxes WHERE"
        " sandboxes.namespace = events.namespace AND sandboxes.id = events.sandbox)"
    )


class Events:
    """Reads events, and waits for more.

    Args:
        database: where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._news: WeakValueDictionary[Key, asyncio.Event] = WeakValueDictionary()

    async def add(self, record: Record, type: str, reason: str | None = None) -> None:
        """Add an event that is no change of state."""
        event = SandboxEvent(
            type=type, at=datetime.now(UTC), generation=record.generation, reason=reason
        )
        await self._database.write(lambda connection: append(connection, record.key, event))
        self.announce(record.key)

    def announce(self, key: Key) -> None:
        """Tell who follows that there may be something new."""
        if news := self._news.get(key):
            news.set()

    async def after(self, key: Key, seq: int, limit: int = PAGE) -> list[SandboxEvent]:
        """Return up to *limit* events whose number is above *seq*."""
        rows = await self._database.read(_SELECT, (*key, seq, limit))
        return [
            msgspec.structs.replace(msgspec.json.decode(body, type=SandboxEvent), seq=number)
            for number, body in rows
        ]

    async def follow(self, key: Key, seq: int) -> AsyncGenerator[SandboxEvent, None]:
        """Yield the events whose number is above *seq*, for ever."""
        news = self._news.setdefault(key, asyncio.Event())
        while True:
            news.clear()
            while found := await self.after(key, seq):
                for event in found:
                    yield event
                seq = found[-1].seq
            await news.wait()
