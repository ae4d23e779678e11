import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.engine.store.database import Database
from atoll.errors import NoSpaceError


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database(tmp_path / "a.db").open()
    yield opened
    await opened.close()


def put(database: Database, name: str) -> "asyncio.Future[None]":
    return asyncio.ensure_future(database.execute("INSERT INTO meta VALUES (?, 'x')", (name,)))


async def names(database: Database) -> list[str]:
    return [row[0] for row in await database.read("SELECT name FROM meta ORDER BY name", ())]


async def test_one_failing_write_of_a_batch_does_not_fail_the_others(database: Database) -> None:
    await put(database, "b")
    outcomes = await asyncio.gather(
        *(put(database, name) for name in "abc"), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        sqlite3.IntegrityError,
        type(None),
    ]
    assert await names(database) == ["a", "b", "c"]


async def test_a_cancelled_write_is_still_made(database: Database) -> None:
    writing = put(database, "a")
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait([writing])
    await put(database, "b")
    assert await names(database) == ["a", "b"]


async def test_the_disk_gets_every_commit_before_success_is_told(
    database: Database, tmp_path: Path
) -> None:
    await put(database, "a")
    reader = sqlite3.connect(tmp_path / "a.db")
    assert reader.execute("SELECT name FROM meta").fetchall() == [("a",)]
    reader.close()
    assert database._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    assert database._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_full_disk_is_a_typed_error_and_the_writer_goes_on(database: Database) -> None:
    (pages,) = (await database.read("PRAGMA page_count", ()))[0]
    await database.write(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}"))
    with pytest.raises(NoSpaceError):
        await put(database, "x" * 200_000)
    await put(database, "a")
    assert await names(database) == ["a"]


async def test_a_file_that_is_no_store_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "b.db").write_bytes(b"x" * 8_192)
    with pytest.raises(sqlite3.DatabaseError):
        await Database(tmp_path / "b.db").open()
