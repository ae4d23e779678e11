import sqlite3
from collections.abc import Iterator

import pytest

from atoll.engine.cluster.documents import Key
from atoll.engine.cluster.rows import Copy
from atoll.errors import NotSupportedByRuntimeError

KEY = Key("sessions", ("n", "box"))


@pytest.fixture
def copy() -> Iterator[Copy]:
    made = Copy()
    yield made
    made.close()


def test_a_write_is_told_and_not_done(copy: Copy) -> None:
    tried = copy.attempt(
        lambda rows: rows.execute("INSERT INTO sessions VALUES ('n', 'box', ?)", (b"{}",)).rowcount
    )
    assert tried.value == 1
    assert tried.changed == {KEY: {"sessions": [{"namespace": "n", "id": "box", "body": b"{}"}]}}
    assert copy.read("SELECT 1 FROM sessions", ()) == []


def test_what_is_put_replaces_all_of_an_object_and_nothing_else(copy: Copy) -> None:
    row = {"namespace": "n", "id": "box", "body": b"1"}
    copy.put(KEY, {"sessions": [row]})
    copy.put(Key("sessions", ("n", "other")), {"sessions": [row | {"id": "other"}]})
    copy.put(KEY, {"sessions": [row | {"body": b"2", "of_a_newer_engine": 1}]})
    assert copy.read("SELECT id, body FROM sessions ORDER BY id", ()) == [
        ("box", b"2"), ("other", b"1"),
    ]  # fmt: skip
    copy.put(KEY, {})
    assert copy.read("SELECT id FROM sessions", ()) == [("other",)]


def test_a_row_that_goes_takes_its_object_along(copy: Copy) -> None:
    copy.put(KEY, {"sessions": [{"namespace": "n", "id": "box", "body": b"1"}]})
    assert copy.attempt(lambda rows: rows.execute("DELETE FROM sessions")).changed == {KEY: {}}


def test_a_write_that_fails_leaves_nothing(copy: Copy) -> None:
    def job(rows: sqlite3.Connection) -> None:
        rows.execute("INSERT INTO meta VALUES ('a', 'b')")
        raise LookupError

    with pytest.raises(LookupError):
        copy.attempt(job)
    assert copy.read("SELECT 1 FROM meta", ()) == []


def test_what_cannot_be_shared_is_refused(copy: Copy) -> None:
    with pytest.raises(NotSupportedByRuntimeError):
        copy.attempt(lambda rows: rows.execute("INSERT INTO projects VALUES ('p', '{}')"))
