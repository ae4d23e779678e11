import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from atoll.engine.store.shelf import Shelf
from atoll.engine.store.store import Store
from atoll.errors import ValidationFailedError

TABLES = ["snapshots", "backups"]


@pytest.fixture(params=TABLES)
async def shelf(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Shelf[int]]:
    store = await Store(tmp_path / "atoll.db").open()
    yield Shelf(store, request.param, int)
    await store.close()


async def test_what_was_added_is_found_as_it_was(shelf: Shelf[int]) -> None:
    await shelf.add("N", "s1", "box", None, 7)
    assert await shelf.get("N", "s1") == await shelf.find("s1") == 7
    assert await shelf.get("M", "s1") is None
    await shelf.delete("s1")
    assert await shelf.get("N", "s1") is await shelf.find("s1") is None


async def test_ends_are_told_with_the_ids(shelf: Shelf[int]) -> None:
    end = datetime(2026, 2, 1, tzinfo=UTC)
    await shelf.add("N", "s1", "box", end, 1)
    await shelf.add("M", "s2", "box", None, 2)
    assert await shelf.ends() == {"s1": end.timestamp(), "s2": None}


async def test_an_id_is_never_given_twice(shelf: Shelf[int]) -> None:
    await shelf.add("N", "s1", "box", None, 1)
    with pytest.raises(sqlite3.IntegrityError):
        await shelf.add("M", "s1", "box", None, 2)
    assert await shelf.get("M", "s1") is None


async def test_pages_follow_the_order_in_which_they_were_added(shelf: Shelf[int]) -> None:
    for number in range(250):
        await shelf.add("N", f"s{249 - number}", "box", None, number)
    found: list[int] = []
    cursor, pages = "0", 0
    while cursor:
        page = await shelf.page("N", sandbox="box", cursor=cursor, limit=100)
        found += page.entries
        cursor, pages = page.cursor or "", pages + 1
    assert (found, pages) == ([*range(250)], 3)
    even = await shelf.page(
        "N", sandbox=None, cursor=None, limit=125, accept=lambda number: number % 2 == 0
    )
    assert (len(even.entries), even.cursor) == (125, None)
    assert await shelf.page("N", sandbox="other", cursor=None, limit=9) == ([], None)
    assert len((await shelf.page("N", sandbox=None, cursor=None, limit=-5)).entries) == 1


@pytest.mark.parametrize("cursor", ["x", "-1", "", "1" * 30, "²"])
async def test_what_is_no_cursor_is_refused(shelf: Shelf[int], cursor: str) -> None:
    with pytest.raises(ValidationFailedError):
        await shelf.page("N", sandbox=None, cursor=cursor, limit=1)
