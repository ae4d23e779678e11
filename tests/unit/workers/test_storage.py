import asyncio
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import ResourceBusyError, SandboxError, ValidationFailedError
from atoll.workers.gate import Gate
from atoll.workers.storage import Storage, Transaction, remove


class Address:
    """The engine's side is not asked for here."""


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    address: Any = Address()
    made = Storage(tmp_path / "deep" / "box.sqlite", Gate("box"), address)
    yield made
    made.close()


async def test_values_come_back_as_they_were(storage: Storage) -> None:
    when = datetime(2024, 1, 1, tzinfo=UTC)
    await storage.put("a", {"b": b"\0", "when": when, "t": (1, 2)})
    await storage.put({"x": 1, "y": None})
    assert await storage.get("a") == {"b": b"\0", "when": when, "t": (1, 2)}
    assert await storage.get(["x", "a", "no", "y"]) == {"a": await storage.get("a"), "x": 1}
    assert await storage.get("no") is None


async def test_deleting_tells_what_was_there(storage: Storage) -> None:
    await storage.put({"a": 1, "b": 2, "c": 3})
    assert await storage.delete("a") is True
    assert await storage.delete("a") is False
    assert await storage.delete(["a", "b"]) == 1
    assert await storage.list() == {"c": 3}


async def test_a_listing_is_in_order_and_within_its_bounds(storage: Storage) -> None:
    await storage.put({name: name for name in ("a1", "a2", "b1", "a%", "ä")})
    assert list(await storage.list(prefix="a")) == ["a%", "a1", "a2"]
    assert list(await storage.list(start="a1", end="b1")) == ["a1", "a2"]
    assert list(await storage.list(start_after="a1", limit=1)) == ["a2"]
    assert list(await storage.list(prefix="a", reverse=True, limit=2)) == ["a2", "a1"]


async def test_everything_can_be_removed(storage: Storage) -> None:
    await storage.put("a", 1)
    storage.sql.exec("CREATE TABLE t (a); CREATE VIEW v AS SELECT * FROM t")
    await storage.delete_all()
    assert await storage.list() == {}
    names = "SELECT count(*) AS n FROM sqlite_schema WHERE name IN ('t', 'v')"
    assert storage.sql.exec(names).one() == {"n": 0}


async def test_what_is_written_is_on_disk_once_the_code_waits(storage: Storage) -> None:
    await storage.put("a", 1)
    assert in_file(storage) == []
    await asyncio.sleep(0)
    assert in_file(storage) == ["a"]
    await storage.put("b", 1)
    await storage.sync()
    assert in_file(storage) == ["a", "b"]


def in_file(storage: Storage) -> list[str]:
    with sqlite3.connect(storage._file) as other:
        rows = other.execute("SELECT key FROM _atoll_kv ORDER BY key").fetchall()
    other.close()
    return [row[0] for row in rows]


async def test_calls_at_once_that_read_and_write_count_right(storage: Storage) -> None:
    async def count() -> None:
        n = await storage.get("n") or 0
        await storage.put("n", n + 1)

    await asyncio.gather(*(count() for _ in range(50)))
    assert await storage.get("n") == 50


@pytest.mark.parametrize("key", ["", "x" * 2049, 7])
async def test_a_bad_key_or_value_stores_nothing(storage: Storage, key: Any) -> None:
    with pytest.raises(ValidationFailedError):
        await storage.put({"good": 1, key: 1})
    with pytest.raises(ValidationFailedError, match="the value of 'b'"):
        await storage.put({"good": 1, "b": object()})
    assert await storage.list() == {}


async def test_a_transaction_is_all_or_nothing(storage: Storage) -> None:
    async def fails(_: Transaction) -> None:
        await storage.put("a", 1)
        storage.sql.exec("CREATE TABLE t (a)")
        await asyncio.sleep(0)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await storage.transaction(fails)
    assert await storage.list() == {}

    async def works(_: Transaction) -> str:
        await storage.put("a", 1)
        await asyncio.sleep(0)
        await storage.transaction(lambda _: storage.put("b", 2))
        return "done"

    assert await storage.transaction(works) == "done"
    assert in_file(storage) == ["a", "b"]


async def test_a_transaction_can_be_taken_back_without_an_error(storage: Storage) -> None:
    async def work(transaction: Transaction) -> int:
        await storage.put("a", 1)
        transaction.rollback()
        return 7

    assert await storage.transaction(work) == 7
    assert await storage.list() == {}


async def test_other_calls_wait_for_a_transaction(storage: Storage) -> None:
    await storage.put("n", 0)
    inside = asyncio.Event()

    async def work(_: Transaction) -> None:
        n = await storage.get("n")
        inside.set()
        await asyncio.sleep(0.02)
        await storage.put("n", n + 1)

    async def other() -> None:
        await inside.wait()
        with pytest.raises(ResourceBusyError):
            storage.sql.exec("SELECT 1")
        await storage.put("n", (await storage.get("n")) + 10)

    await asyncio.gather(storage.transaction(work), other())
    assert await storage.get("n") == 11


async def test_transactions_at_once_come_one_after_the_other(storage: Storage) -> None:
    async def work(_: Transaction) -> None:
        n = await storage.get("n") or 0
        await asyncio.sleep(0.001)
        await storage.put("n", n + 1)

    await asyncio.gather(*(storage.transaction(work) for _ in range(10)))
    assert await storage.get("n") == 10


async def test_a_transaction_that_does_not_wait_is_all_or_nothing_too(storage: Storage) -> None:
    storage.sql.exec("CREATE TABLE t (a)")

    def fails() -> None:
        storage.sql.exec("INSERT INTO t VALUES (1)")
        raise KeyError

    with pytest.raises(KeyError):
        storage.transaction_sync(fails)
    assert storage.sql.exec("SELECT * FROM t").to_array() == []
    assert storage.transaction_sync(lambda: storage.sql.exec("SELECT 5 AS a").one()) == {"a": 5}


async def test_a_file_that_cannot_be_written_is_a_typed_error_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    address: Any = Address()
    storage = Storage(tmp_path / "file" / "box.sqlite", Gate("box"), address)
    with pytest.raises(SandboxError, match="storage failed"):
        await storage.get("a")


async def test_a_commit_that_fails_is_told_and_undone(storage: Storage) -> None:
    storage.sql.exec("CREATE TABLE p (id INTEGER PRIMARY KEY)")
    storage.sql.exec("CREATE TABLE c (p REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED)")
    storage.flush()
    storage.sql.exec("INSERT INTO c VALUES (1)")
    await asyncio.sleep(0)
    with pytest.raises(SandboxError, match="FOREIGN KEY"):
        storage.flush()
    assert storage.sql.exec("SELECT * FROM c").to_array() == []


async def test_closing_and_removing_leave_nothing(storage: Storage) -> None:
    await storage.put("a", 1)
    await storage.sync()
    storage.close()
    assert await storage.get("a") == 1
    await storage.sync()
    storage.close()
    remove(storage._file)
    assert list(storage._file.parent.iterdir()) == []
    remove(storage._file)


async def test_a_transaction_that_cannot_begin_keeps_nobody_out(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await storage.put("a", 1)
    await storage.sync()
    with sqlite3.connect(storage._file, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        storage._connection().execute("PRAGMA busy_timeout = 1")
        with pytest.raises(sqlite3.OperationalError):
            await storage.transaction(lambda _: None)
        other.execute("ROLLBACK")
    other.close()
    await storage.transaction(lambda _: storage.put("b", 2))
    assert await storage.get("b") == 2
