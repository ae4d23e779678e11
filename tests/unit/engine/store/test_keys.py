import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from atoll.engine.store import keys as module
from atoll.engine.store.keys import Keys
from atoll.engine.store.store import Store
from atoll.errors import KeyNotFoundError, ResourceBusyError, ValidationFailedError
from atoll.wire.keys import CreateKey, Scope


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    found = await Store(tmp_path / "atoll.db").open()
    yield found
    await found.close()


async def test_a_key_works_from_the_moment_it_is_made_and_in_the_next_engine(store: Store) -> None:
    keys = Keys(store)
    assert not keys
    made = await keys.create(CreateKey(name="ci", scope=Scope.READ, namespace="N", rate=2.5))
    assert keys
    assert keys.holder(made.key) == made.info
    again = Keys(store)
    await again.load()
    assert again.holder(made.key) == made.info
    assert again.listing() == [made.info]


async def test_the_store_never_has_the_text(store: Store, tmp_path: Path) -> None:
    made = await Keys(store).create(CreateKey(name="ci"))
    secret = made.key.rpartition("_")[2]
    await store.read("PRAGMA wal_checkpoint", ())
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()
    assert secret not in str(made.info.to_dict())


async def test_other_texts_are_no_keys(store: Store) -> None:
    keys = Keys(store)
    one, two = [(await keys.create(CreateKey(name=name))).key for name in "ab"]
    mixed = "_".join([*one.split("_")[:2], two.split("_")[2]])
    for text in ("", one[:-1], one + "0", one.upper(), mixed, one.split("_")[1], f" {one}", "é"):
        assert keys.holder(text) is None


async def test_a_revoked_key_is_none(store: Store) -> None:
    keys = Keys(store)
    made = await keys.create(CreateKey(name="ci"))
    await keys.revoke(made.info.id)
    assert keys.holder(made.key) is None
    assert not keys
    with pytest.raises(KeyNotFoundError):
        await keys.revoke(made.info.id)
    again = Keys(store)
    await again.load()
    assert not again


async def test_a_key_ends_when_it_was_told_to_and_still_counts_as_one(store: Store) -> None:
    """The end of the last key must not open the engine to everybody on the machine."""
    keys = Keys(store)
    made = await keys.create(CreateKey(name="ci", expires_in_ms=60_000))
    now = datetime.now(UTC)
    assert keys.holder(made.key, now + timedelta(seconds=59))
    assert keys.holder(made.key, now + timedelta(seconds=61)) is None
    assert keys


async def test_keys_are_many_but_not_without_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 1)
    keys = Keys(store)
    await keys.create(CreateKey(name="one"))
    with pytest.raises(ResourceBusyError):
        await keys.create(CreateKey(name="two"))


async def test_a_namespace_that_cannot_be_is_refused(store: Store) -> None:
    with pytest.raises(ValidationFailedError):
        await Keys(store).create(CreateKey(name="x", namespace="../N"))


async def test_keys_cannot_be_guessed(store: Store) -> None:
    made = await Keys(store).create(CreateKey(name="x"))
    assert re.fullmatch(r"atoll_[0-9a-f]{12}_[0-9a-f]{40}", made.key)
