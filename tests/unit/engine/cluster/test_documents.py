import json
import random
import sqlite3

import pytest

from atoll.engine.cluster import documents
from atoll.engine.cluster.documents import Key
from atoll.engine.cluster.rows import _OTHERS
from atoll.engine.store import schema
from atoll.errors import NoSpaceError

KEY = Key("sandbox", ("N", "box"))


def rows(size: int = 10) -> documents.Rows:
    noise = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))
    body = json.dumps({"generation": 3, "env": noise}).encode()
    return {"sandboxes": [{"state": "running", "host_ref": "r-1", "body": body, "version": 2}]}


@pytest.mark.parametrize("size", [10, 300_000])
def test_what_is_packed_comes_out_again(size: int) -> None:
    found = json.loads(json.dumps(documents.packed(KEY, rows(size))))
    assert documents.unpacked(found) == rows(size)
    assert documents.key_of(found) == KEY
    assert (found["state"], found["generation"], found["pod"]) == ("running", 3, "r-1")


def test_what_no_object_can_hold_is_a_typed_error_before_anything_is_sent() -> None:
    with pytest.raises(NoSpaceError, match="N/box"):
        documents.packed(KEY, rows(1_900_000))


def test_names_of_objects_are_names_whatever_the_id() -> None:
    names = {Key("sandbox", ("N", id)).name for id in ("Ä B", "a b", "a/b", "A" * 200)}
    assert len(names) == 4
    assert all(len(name) <= 63 and name.replace("-", "").isalnum() for name in names)
    assert Key("sandbox", ("a", "b")).name != Key("sandbox", ("a\0b", "")).name


def test_every_table_is_kept_in_objects_or_refused() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(connection)
    tables = {
        row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    connection.close()
    ours = {name for name in tables if not name.startswith("sqlite_")}
    assert ours == set(documents.TABLES) | set(_OTHERS)


@pytest.mark.parametrize("kind", documents.PLURALS)
def test_definitions_name_what_objects_have(kind: str) -> None:
    version = documents.definition(kind)["spec"]["versions"][0]
    known = version["schema"]["openAPIV3Schema"]["properties"]
    key = KEY if kind == documents.SANDBOX else Key("meta", ("n",))
    for size in (10, 300_000):
        found = documents.packed(key, rows(size) if key is KEY else {})
        assert set(found) - {"apiVersion", "kind", "metadata"} <= set(known)
