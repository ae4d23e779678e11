import asyncio
from pathlib import Path
from typing import Any

import pytest

from atoll.engine.engine import Engine
from atoll.engine.leftovers import reaper
from atoll.engine.sandbox import Sandbox
from atoll.errors import (
    NoSpaceError,
    SandboxDestroyedError,
    SnapshotNotFoundError,
    ValidationFailedError,
)
from atoll.wire.sandbox import SandboxOptions, State
from atoll.wire.snapshots import Fork, TakeSnapshot
from integration.engine.conftest import Opener
from integration.engine.scripted import World


async def origin(engine: Engine, world: World, text: str = "then") -> Sandbox:
    box = engine.sandbox("N", "box")
    await box.configure(SandboxOptions(labels={"team": "a"}, sleep_after_ms=5000))
    await box.set_env({"KEY": "value"})
    await box.ensure_running()
    file(world, box).write_text(text)
    return box


def file(world: World, box: Sandbox) -> Path:
    assert box.record
    return world.state_dir / "layers" / box.record.layer_id / "file"


async def test_forks_have_files_options_and_variables_and_no_identity_of_their_origin(
    engine: Engine, world: World
) -> None:
    box = await origin(engine, world)
    result = await engine.forks.fork(box, Fork(count=3))
    ids = [fork.id for fork in result.forks]
    assert len(set(ids)) == 3
    assert all(id.startswith("box-") for id in ids)
    for id in ids:
        fork = engine.sandbox("N", id)
        record = await fork.load()
        assert record
        assert box.record
        assert record.state is State.STOPPED
        assert (record.wanted.labels, record.env) == ({"team": "a"}, {"KEY": "value"})
        assert record.layer_id != box.record.layer_id
        assert file(world, fork).read_text() == "then"
        await fork.ensure_running()
        file(world, fork).write_text(id)
    assert file(world, box).read_text() == "then"
    assert await world.layers.snapshots.list() == []


@pytest.mark.parametrize(
    ("wanted", "ids"), [(Fork(id="f"), ["f"]), (Fork(id="f", count=2), ["f-1", "f-2"])]
)
async def test_forks_are_called_as_they_are_wanted(
    engine: Engine, world: World, wanted: Fork, ids: list[str]
) -> None:
    box = await origin(engine, world)
    assert [fork.id for fork in (await engine.forks.fork(box, wanted)).forks] == ids


async def test_one_that_cannot_be_made_does_not_keep_the_others_from_it(
    engine: Engine, world: World
) -> None:
    box = await origin(engine, world)
    taken = engine.sandbox("N", "f-2")
    await taken.ensure_running()
    before = await world.layers.list()
    result = await engine.forks.fork(box, Fork(id="f", count=3))
    codes = [fork.error and fork.error["code"] for fork in result.forks]
    assert codes == [None, "SANDBOX_ALREADY_EXISTS", None]
    assert len(await world.layers.list()) == len(before) + 2
    assert taken.is_in(State.RUNNING)
    bad = await engine.forks.fork(box, Fork(id="-bad-"))
    assert [fork.error and fork.error["code"] for fork in bad.forks] == ["INVALID_SANDBOX_ID"]


async def test_a_destroyed_id_can_be_used_and_goes_on_counting(
    engine: Engine, world: World
) -> None:
    box = await origin(engine, world)
    old = engine.sandbox("N", "f")
    await old.ensure_running()
    await old.destroy()
    assert not (await engine.forks.fork(box, Fork(id="f"))).forks[0].error
    assert (await old.ensure_running()).generation == 2


async def test_a_fork_of_a_snapshot_begins_as_that(engine: Engine, world: World) -> None:
    box = await origin(engine, world, "then")
    snapshot = await engine.snapshots.take(box, TakeSnapshot())
    file(world, box).write_text("now")
    await engine.forks.fork(box, Fork(id="f", from_snapshot=snapshot.id))
    fork = engine.sandbox("N", "f")
    assert await fork.load()
    assert file(world, fork).read_text() == "then"
    assert (await engine.snapshots.take(fork, TakeSnapshot())).parent == snapshot.id
    with pytest.raises(SnapshotNotFoundError):
        await engine.forks.fork(box, Fork(from_snapshot="none"))


@pytest.mark.parametrize("count", [0, -1, 1001])
async def test_a_number_out_of_range_is_refused(engine: Engine, world: World, count: int) -> None:
    with pytest.raises(ValidationFailedError):
        await engine.forks.fork(engine.sandbox("N", "box"), Fork(count=count))
    assert world.runtime.starts == 0


async def test_going_back_ends_what_runs_and_keeps_variables(engine: Engine, world: World) -> None:
    box = await origin(engine, world, "then")
    snapshot = await engine.snapshots.take(box, TakeSnapshot())
    file(world, box).write_text("now")
    await box.set_env({"LATER": "1"})
    record = await engine.forks.restore(box, snapshot.id)
    assert (record.state, record.reason) == (State.STOPPED, "restored")
    assert record.env == {"KEY": "value", "LATER": "1"}
    assert file(world, box).read_text() == "then"
    assert world.left() == {}
    assert (await box.ensure_running()).generation == 2
    assert len(await world.layers.list()) == 1


async def test_a_sandbox_that_was_not_there_begins_as_the_snapshot(
    engine: Engine, world: World
) -> None:
    snapshot = await engine.snapshots.take(await origin(engine, world), TakeSnapshot())
    new = engine.sandbox("N", "new")
    await engine.forks.restore(new, snapshot.id)
    await new.ensure_running()
    assert file(world, new).read_text() == "then"


async def fail(*_: Any, **__: Any) -> None:
    raise NoSpaceError("full")


async def test_a_copy_that_fails_changes_nothing(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await origin(engine, world)
    snapshot = await engine.snapshots.take(box, TakeSnapshot())
    file(world, box).write_text("now")
    with monkeypatch.context() as patched:
        patched.setattr(world.layers.snapshots, "clone", fail)
        with pytest.raises(NoSpaceError):
            await engine.forks.restore(box, snapshot.id)
        result = await engine.forks.fork(box, Fork(id="f"))
    assert [fork.error and fork.error["code"] for fork in result.forks] == ["NO_SPACE"]
    assert box.is_in(State.RUNNING)
    assert file(world, box).read_text() == "now"
    assert len(await world.layers.list()) == 1
    assert await engine.sandbox("N", "f").load() is None


async def test_a_record_that_cannot_be_written_leaves_no_layer(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await origin(engine, world)
    with monkeypatch.context() as patched:
        patched.setattr(engine.store, "create", fail)
        result = await engine.forks.fork(box, Fork(count=2))
    assert [fork.error and fork.error["code"] for fork in result.forks] == ["NO_SPACE"] * 2
    assert len(await world.layers.list()) == 1


async def test_layers_that_are_being_copied_are_nobodys_orphans(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await origin(engine, world)
    copied, go_on = asyncio.Event(), asyncio.Event()
    clone = world.layers.snapshots.clone

    async def slow(*arguments: Any) -> None:
        await clone(*arguments)
        copied.set()
        await go_on.wait()

    monkeypatch.setattr(world.layers.snapshots, "clone", slow)
    forking = asyncio.create_task(engine.forks.fork(box, Fork(id="f")))
    await copied.wait()
    await reaper.sweep(engine._shared.lifecycle, engine.store)
    go_on.set()
    await forking
    fork = engine.sandbox("N", "f")
    assert await fork.load()
    assert file(world, fork).read_text() == "then"


async def test_an_engine_killed_while_it_copies_leaves_nothing(
    opener: Opener, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = asyncio.Event()
    clone = world.layers.snapshots.clone

    async def die(*arguments: Any) -> None:
        await clone(*arguments)
        copied.set()
        await asyncio.Event().wait()

    async with opener() as first:
        box = await origin(first, world)
        with monkeypatch.context() as patched:
            patched.setattr(world.layers.snapshots, "clone", die)
            forking = asyncio.create_task(first.forks.fork(box, Fork(id="f")))
            await copied.wait()
            monkeypatch.setattr(first._shared.lifecycle.parts.layers, "delete", fail)
            assert len(await world.layers.list()) == 2
    forking.cancel()
    await asyncio.gather(forking, return_exceptions=True)
    monkeypatch.undo()
    async with opener() as second:
        assert await second.sandbox("N", "f").load() is None
        assert len(await world.layers.list()) == 1
        assert await world.layers.snapshots.list() == []


async def test_many_callers_of_one_id_make_one_sandbox(engine: Engine, world: World) -> None:
    box = await origin(engine, world)
    results = await asyncio.gather(*(engine.forks.fork(box, Fork(id="f")) for _ in range(10)))
    codes = [r.forks[0].error and r.forks[0].error["code"] for r in results]
    assert sorted(codes, key=str) == [None] + ["SANDBOX_ALREADY_EXISTS"] * 9
    assert len(await world.layers.list()) == 2


async def test_going_back_while_it_is_destroyed_begins_a_new_life(
    engine: Engine, world: World
) -> None:
    box = await origin(engine, world)
    snapshot = await engine.snapshots.take(box, TakeSnapshot())
    destroying = asyncio.create_task(box.destroy())
    await asyncio.sleep(0)
    record, *_ = await asyncio.gather(
        engine.forks.restore(box, snapshot.id), engine.forks.restore(box, snapshot.id), destroying
    )
    assert record.state is State.STOPPED
    assert file(world, box).read_text() == "then"
    await box.destroy()
    assert await world.layers.list() == []


async def test_forks_of_a_sandbox_that_is_destroyed_first_are_refused(
    engine: Engine, world: World
) -> None:
    box = await origin(engine, world)
    await box.stop()
    destroying = asyncio.create_task(box.destroy())
    await asyncio.sleep(0)
    results = await asyncio.gather(
        engine.forks.fork(box, Fork(id="f")),
        engine.snapshots.take(box, TakeSnapshot()),
        destroying,
        return_exceptions=True,
    )
    assert [type(result) for result in results[:2]] == [SandboxDestroyedError] * 2
    assert await world.layers.list() == []
    assert await world.layers.snapshots.list() == []
