import sqlite3
from collections.abc import Iterator

import pytest

from atoll.errors import ValidationFailedError
from atoll.workers.sql import Sql, split


@pytest.fixture
def sql() -> Iterator[Sql]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE _atoll_kv (key TEXT)")
    yield Sql(lambda: connection)
    connection.close()


def test_rows_are_dictionaries_tuples_or_the_only_one(sql: Sql) -> None:
    sql.exec("CREATE TABLE t (a INTEGER, b TEXT); INSERT INTO t VALUES (1, 'x;y');")
    assert sql.exec("INSERT INTO t VALUES (?, ?)", 2, "z").rows_written == 1
    cursor = sql.exec("SELECT * FROM t ORDER BY a")
    assert cursor.column_names == ["a", "b"]
    assert list(cursor) == [{"a": 1, "b": "x;y"}, {"a": 2, "b": "z"}]
    assert list(sql.exec("SELECT a FROM t ORDER BY a").raw()) == [(1,), (2,)]
    assert sql.exec("SELECT a FROM t WHERE a = ?", 2).one() == {"a": 2}
    assert sql.exec("SELECT a FROM t").rows_read == 2
    assert sql.database_size > 0


@pytest.mark.parametrize("query", ["SELECT a FROM t", "SELECT a FROM t WHERE a > 5"])
def test_one_means_exactly_one(sql: Sql, query: str) -> None:
    sql.exec("CREATE TABLE t (a)")
    sql.exec("INSERT INTO t VALUES (1), (2)")
    with pytest.raises(ValidationFailedError, match="exactly one"):
        sql.exec(query).one()


@pytest.mark.parametrize(
    "query",
    ["BEGIN", "COMMIT", "SAVEPOINT x", "ATTACH '/tmp/x' AS y", "PRAGMA synchronous = OFF",
     "SELECT * FROM _atoll_kv", "DROP TABLE _ATOLL_KV", "CREATE TABLE _atoll_mine (a)",
     "SELEC 1", "SELECT ?", "", " ; ", "-- nothing", "SELECT 1; ROLLBACK"],
)  # fmt: skip
def test_what_is_wrong_or_not_allowed_is_a_typed_error(sql: Sql, query: str) -> None:
    """A transaction ended by hand would end the one that storage relies on."""
    with pytest.raises(ValidationFailedError):
        sql.exec(query)


def test_values_that_sqlite_cannot_hold_are_typed_errors(sql: Sql) -> None:
    for value in (object(), 2**70):
        with pytest.raises(ValidationFailedError):
            sql.exec("SELECT ?", value)


def test_statements_are_divided_where_sqlite_divides_them() -> None:
    trigger = "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; SELECT 2; END;"
    assert split(f"SELECT ';'; {trigger} SELECT 3") == ["SELECT ';';", f" {trigger}", " SELECT 3"]


def test_the_shape_of_tables_may_be_read(sql: Sql) -> None:
    sql.exec("CREATE TABLE t (a)")
    assert sql.exec("PRAGMA table_info(t)").one()["name"] == "a"
