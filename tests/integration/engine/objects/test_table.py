import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.engine.objects.table import Table
from atoll.engine.store.store import Store


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[Table]:
    store = await Store(tmp_path / "atoll.db").open()
    yield Table(store)
    await store.close()


async def test_an_id_has_one_object_a_life(table: Table) -> None:
    rows = await asyncio.gather(*(table.ensure(("N", "box")) for _ in range(10)))
    assert len({row.uid for row in rows}) == 1
    await table.bury(("N", "box"))
    again = await table.ensure(("N", "box"))
    assert again.uid != rows[0].uid
    lives = await table.lives(("N", "box"))
    assert [(row.uid, row.gone) for row in lives] == [(rows[0].uid, True), (again.uid, False)]


async def test_what_was_told_is_remembered_until_it_is_forgotten(table: Table) -> None:
    row = await table.ensure(("N", "box"))
    await table.mark_started(row.uid, 3)
    assert await table.untold(["N", "M"]) == {("N", "box")}
    await table.mark_stopped(row.uid, 3)
    assert await table.untold(["N"]) == set()
    (told,) = await table.lives(("N", "box"))
    assert (told.started, told.stopped) == (3, 3)
    await table.forget(row.uid)
    assert await table.lives(("N", "box")) == []
