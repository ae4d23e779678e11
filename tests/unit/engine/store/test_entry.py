import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.engine.capacity.warm import Kind, Warm, WarmTable
from atoll.engine.store.entry import Entry
from atoll.engine.store.record import InForce, Record
from atoll.engine.store.store import Store
from atoll.errors import ContainerNotReadyError, SandboxDestroyedError
from atoll.wire.sandbox import Limits, SandboxOptions, State


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store(tmp_path / "atoll.db").open()
    yield opened
    await opened.close()


async def test_the_first_caller_creates_and_the_others_get_the_same(store: Store) -> None:
    entry = Entry("N", "box", store)
    made = await asyncio.gather(*(entry.get_or_create(SandboxOptions(), f"l{n}") for n in range(9)))
    assert {record.layer_id for record in made} == {made[0].layer_id}


async def test_a_second_life_has_other_files_and_goes_on_counting(store: Store) -> None:
    entry = Entry("N", "box", store)
    await entry.get_or_create(SandboxOptions(image="a"), "l1")
    await entry.save(generation=7)
    await entry.save(state=State.DESTROYED)
    assert await entry.load() is None
    again = await entry.get_or_create(SandboxOptions(), "l2")
    assert (again.layer_id, again.generation, again.wanted) == ("l2", 7, SandboxOptions())


async def test_a_tombstone_is_never_changed(store: Store) -> None:
    """Who waited for the end of a destroy must not write into what is left."""
    entry = Entry("N", "box", store)
    await entry.get_or_create(SandboxOptions(), "l")
    tombstone = await entry.save(state=State.DESTROYED)
    for state in (State.STOPPED, State.DESTROYED):
        with pytest.raises(SandboxDestroyedError):
            await entry.save(state=state, env={"KEY": "value"})
    assert await entry.change(lambda _: {"env": {"KEY": "value"}}) == tombstone
    with pytest.raises(SandboxDestroyedError):
        entry.existing.layer_id  # noqa: B018
    assert await store.get("N", "box") == tombstone


async def test_a_write_whose_caller_is_cancelled_is_known_in_memory_too(store: Store) -> None:
    entry = Entry("N", "box", store)
    await entry.get_or_create(SandboxOptions(), "l")
    writing = asyncio.create_task(entry.save(generation=3))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait([writing])
    await entry.settle()
    assert entry.existing.generation == 3
    assert await store.get("N", "box") == entry.existing
    await entry.save(generation=4)


async def test_writes_at_the_same_time_are_all_kept(store: Store) -> None:
    entry = Entry("N", "box", store)
    await entry.get_or_create(SandboxOptions(), "l")
    await asyncio.gather(entry.save(generation=3), entry.save(exit_code=4))
    assert (entry.existing.generation, entry.existing.exit_code) == (3, 4)


async def test_another_engines_write_is_a_retryable_error_and_then_seen(store: Store) -> None:
    ours, theirs = Entry("N", "box", store), Entry("N", "box", store)
    await ours.get_or_create(SandboxOptions(), "l")
    await theirs.load()
    await theirs.save(generation=9)
    with pytest.raises(ContainerNotReadyError):
        await ours.save(generation=1)
    await ours.load()
    await ours.save(exit_code=1)
    assert ours.existing.generation == 9


async def test_impossible_transitions_are_never_written(store: Store) -> None:
    entry = Entry("N", "box", store)
    with pytest.raises(AssertionError):
        await entry.save(state=State.RUNNING)
    await entry.get_or_create(SandboxOptions(), "l")
    with pytest.raises(AssertionError):
        await entry.save(state=State.FROZEN)


async def test_the_time_of_the_last_change_of_state_is_kept(store: Store) -> None:
    entry = Entry("N", "box", store)
    made = await entry.get_or_create(SandboxOptions(), "l")
    same = await entry.save(generation=1)
    assert same.state_changed_at == made.state_changed_at
    changed = await entry.save(state=State.STARTING)
    assert changed.state_changed_at
    assert made.state_changed_at
    assert changed.state_changed_at > made.state_changed_at


async def test_a_warm_container_goes_to_one_sandbox_in_one_write(store: Store) -> None:
    await WarmTable(store).put(Warm(host_ref="h", layer_id="warm", kind=Kind("i", "lite", "c")))
    force = InForce(
        image="i",
        digest="d",
        instance_type="lite",
        level="c",
        runtime="r",
        limits=Limits(memory=1, cpu=1, disk=1, pids=1),
    )
    box, other = Entry("N", "box", store), Entry("N", "other", store)
    await box.get_or_create(SandboxOptions(), "own")
    tries = [entry.assign("h", "warm", lambda _: force) for entry in (box, other)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Record, ContainerNotReadyError]
    assert (box.existing.state, box.existing.layer_id) == (State.RUNNING, "warm")
    assert box.existing.generation == 1
    assert await WarmTable(store).all() == []
    assert await store.get("N", "other") is None
