import sqlite3

import pytest

from atoll.engine.store import schema
from atoll.errors import VersionMismatchError


def connection() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}


def test_migrating_twice_changes_nothing() -> None:
    db = connection()
    schema.migrate(db)
    before = tables(db)
    schema.migrate(db)
    assert tables(db) == before >= {"sandboxes", "meta", "namespaces", "keys", "sessions"}
    assert db.execute("PRAGMA user_version").fetchone() == (len(schema.STEPS),)
    db.close()


def test_tombstones_of_an_older_store_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    db, steps = connection(), schema.STEPS
    monkeypatch.setattr(schema, "STEPS", steps[:2])
    schema.migrate(db)
    insert = "INSERT INTO sandboxes VALUES ('N', ?, ?, 1, NULL, 'l', NULL, '')"
    db.executemany(insert, [("a", "destroyed"), ("b", "stopped")])
    monkeypatch.setattr(schema, "STEPS", steps)
    schema.migrate(db)
    assert db.execute("SELECT id, expires_at FROM sandboxes").fetchall() == [
        ("a", 0.0),
        ("b", None),
    ]
    db.close()


def test_a_newer_store_is_refused_untouched() -> None:
    db = connection()
    db.execute("PRAGMA user_version = 99")
    with pytest.raises(VersionMismatchError) as caught:
        schema.migrate(db)
    assert caught.value.context == {"format": 99, "known": len(schema.STEPS)}
    assert tables(db) == set()
    db.close()


def test_a_step_that_fails_leaves_the_store_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    db = connection()
    steps = (("CREATE TABLE one (x)",), ("CREATE TABLE two (x)", "nonsense"))
    monkeypatch.setattr(schema, "STEPS", steps)
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(db)
    assert tables(db) == set()
    assert db.execute("PRAGMA user_version").fetchone() == (0,)
    db.close()
