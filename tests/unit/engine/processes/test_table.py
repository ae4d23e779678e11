from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from atoll.engine.processes.records import ProcessRecord, Status
from atoll.engine.processes.table import ProcessTable
from atoll.engine.store.record import Record
from atoll.engine.store.store import Store
from atoll.wire.process import StartProcessRequest
from atoll.wire.sandbox import State

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = ("N", "s")


def record(uid: str, **fields: Any) -> ProcessRecord:
    known: dict[str, Any] = {
        "uid": uid, "namespace": "N", "sandbox": "s", "layer_id": "l", "generation": 1, "id": uid,
        "request": StartProcessRequest(command=["a", "b"], env={"A": None}),
        "status": Status.RUNNING, "start_time": NOW,
    }  # fmt: skip
    return ProcessRecord(**known | fields)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store(tmp_path / "db").open()
    yield opened
    await opened.close()


@pytest.fixture
def table(store: Store) -> ProcessTable:
    return ProcessTable(store)


async def test_a_record_comes_back_as_it_was(table: ProcessTable) -> None:
    first = record("u", exit_code=3, end_time=NOW, signal="SIGTERM", reason="kill", size=9)
    await table.put(first)
    assert await table.get(OWNER, "u") == first
    assert await table.get(("N", "other"), "u") is None


async def test_a_later_start_of_an_id_replaces_the_earlier(table: ProcessTable) -> None:
    await table.put(record("u1", id="p", status=Status.FAILED))
    await table.put(record("u2", id="p"))
    found = await table.of(OWNER)
    assert [r.uid for r in found] == ["u2"]
    await table.delete([record("u1", id="p")])
    assert await table.get(OWNER, "p") is not None, "only that start is forgotten"


async def test_processes_are_listed_in_the_order_of_their_starts(table: ProcessTable) -> None:
    for n in (2, 0, 1):
        await table.put(record(f"u{n}", start_time=NOW + timedelta(seconds=n)))
    assert [r.uid for r in await table.of(OWNER)] == ["u0", "u1", "u2"]
    assert await table.owners() == [OWNER]


async def test_a_key_finds_what_it_started_in_its_own_sandbox(table: ProcessTable) -> None:
    await table.put(record("u", key="k"))
    found = await table.started_by(OWNER, "k")
    assert found is not None
    assert found.uid == "u"
    assert await table.started_by(("N", "other"), "k") is None


async def test_processes_of_destroyed_sandboxes_are_forgotten(
    table: ProcessTable, store: Store
) -> None:
    sandbox = Record(namespace="N", id="s", state=State.STOPPED, layer_id="l", created_at=NOW)
    await store.create(sandbox)
    await table.put(record("mine"))
    await table.put(record("earlier", layer_id="earlier life"))
    await table.delete_ownerless()
    assert [r.uid for r in await table.of(OWNER)] == ["mine"]
