import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from atoll.engine.bare import parts as bare
from atoll.engine.engine import Engine
from atoll.engine.sandbox import Sandbox
from atoll.engine.store import record as rules
from atoll.errors import (
    NoSpaceError,
    SandboxNotFoundError,
    SnapshotFailedError,
    SnapshotNotFoundError,
    ValidationFailedError,
)
from atoll.wire.sandbox import SandboxOptions, State
from atoll.wire.snapshots import ListSnapshots, TakeSnapshot
from integration.engine.conftest import Opener
from integration.engine.scripted import World


async def box_with(engine: Engine, world: World, **files: str) -> Sandbox:
    box = engine.sandbox("N", "box")
    await box.ensure_running()
    for name, text in files.items():
        (folder(world, box) / name).write_text(text)
    return box


def folder(world: World, box: Sandbox) -> Path:
    assert box.record
    return world.state_dir / "layers" / box.record.layer_id


async def test_processes_are_frozen_while_files_are_kept_and_go_on(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await box_with(engine, world, file="then")
    seen: list[set[str]] = []
    take = world.layers.snapshots.take

    async def watched(layer_id: str, snapshot_id: str) -> None:
        seen.append(set(world.runtime.paused))
        await take(layer_id, snapshot_id)

    monkeypatch.setattr(world.layers.snapshots, "take", watched)
    snapshot = await engine.snapshots.take(box, TakeSnapshot(name="first", labels={"a": "b"}))
    assert box.record
    assert seen == [{box.record.host_ref}]
    assert world.runtime.paused == set()
    assert box.is_in(State.RUNNING)
    assert (snapshot.sandbox, snapshot.name, snapshot.labels) == ("box", "first", {"a": "b"})


async def test_a_sandbox_that_sleeps_is_not_woken(engine: Engine, world: World) -> None:
    box = await box_with(engine, world)
    await box.stop()
    await engine.snapshots.take(box, TakeSnapshot())
    assert box.is_in(State.STOPPED)
    assert world.runtime.starts == 1


async def test_one_that_never_ran_is_started(engine: Engine) -> None:
    snapshot = await engine.snapshots.take(engine.sandbox("N", "new"), TakeSnapshot())
    assert snapshot.sandbox == "new"


async def test_what_cannot_be_frozen_has_no_snapshot_and_goes_on(
    engine: Engine, world: World
) -> None:
    box = await box_with(engine, world)
    world.runtime.failures["pause"] = TimeoutError()
    with pytest.raises(SnapshotFailedError):
        await engine.snapshots.take(box, TakeSnapshot())
    assert world.runtime.paused == set()
    assert await world.layers.snapshots.list() == []
    assert await box.ensure_running()


async def test_a_snapshot_that_cannot_be_recorded_leaves_no_files(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await box_with(engine, world)

    async def fail(*_: object) -> None:
        raise NoSpaceError("full")

    monkeypatch.setattr(engine.snapshots.shelf, "add", fail)
    with pytest.raises(NoSpaceError):
        await engine.snapshots.take(box, TakeSnapshot())
    assert await world.layers.snapshots.list() == []


async def test_each_snapshot_knows_the_one_before(engine: Engine, world: World) -> None:
    box = await box_with(engine, world)
    first, second = [await engine.snapshots.take(box, TakeSnapshot()) for _ in range(2)]
    assert (first.parent, second.parent) == (None, first.id)


async def test_snapshots_are_listed_in_pages_by_sandbox_and_label(
    engine: Engine, world: World
) -> None:
    box = await box_with(engine, world)
    for number in range(5):
        await engine.snapshots.take(box, TakeSnapshot(name=str(number), labels={"n": str(number)}))
    await engine.snapshots.take(engine.sandbox("N", "other"), TakeSnapshot())

    async def listed(**wanted: object) -> tuple[list[str | None], str | None]:
        labels = wanted.pop("labels", {})
        assert isinstance(labels, dict)
        page = await engine.snapshots.list("N", ListSnapshots(**wanted), labels)  # type: ignore[arg-type]
        return [found.name for found in page], page.cursor

    names, cursor = await listed(limit=4)
    assert names == ["0", "1", "2", "3"]
    assert await listed(limit=4, cursor=cursor) == (["4", None], None)
    assert await listed(sandbox="box", limit=5) == (["0", "1", "2", "3", "4"], None)
    assert await listed(labels={"n": "3"}) == (["3"], None)
    assert (await engine.snapshots.list("M", ListSnapshots(), {})).snapshots == []
    with pytest.raises(ValidationFailedError):
        await listed(cursor="x")


async def test_a_snapshot_of_another_namespace_is_not_there(engine: Engine, world: World) -> None:
    box = await box_with(engine, world)
    snapshot = await engine.snapshots.take(box, TakeSnapshot())
    for call in (engine.snapshots.get("M", snapshot.id), engine.snapshots.get("N", "nonsense")):
        with pytest.raises(SnapshotNotFoundError):
            await call
    await engine.snapshots.delete("M", snapshot.id)
    assert (await engine.snapshots.get("N", snapshot.id)).snapshot == snapshot


async def test_it_outlives_its_sandbox_and_goes_when_it_is_deleted(
    engine: Engine, world: World
) -> None:
    box = await box_with(engine, world)
    snapshot = await engine.snapshots.take(box, TakeSnapshot())
    await box.destroy()
    await engine.snapshots.get("N", snapshot.id)
    await engine.snapshots.delete("N", snapshot.id)
    await engine.snapshots.delete("N", snapshot.id)
    assert await world.layers.snapshots.list() == []


async def test_it_is_gone_when_its_time_is_over_also_before_it_is_removed(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await box_with(engine, world)
    short = await engine.snapshots.take(box, TakeSnapshot(ttl_ms=60_000))
    kept = await engine.snapshots.take(box, TakeSnapshot(ttl_ms=120_000))
    later = rules.now() + timedelta(seconds=90)
    monkeypatch.setattr(rules, "now", lambda: later)
    with pytest.raises(SnapshotNotFoundError):
        await engine.snapshots.get("N", short.id)
    await engine.snapshots.tidy()
    assert await world.layers.snapshots.list() == [kept.id]


async def test_what_a_killed_engine_did_not_record_is_removed_by_the_next(
    opener: Opener, world: World
) -> None:
    async with opener() as first:
        box = await box_with(first, world)
        kept = await first.snapshots.take(box, TakeSnapshot())
        assert box.record
        await world.layers.snapshots.take(box.record.layer_id, "half")
    async with opener() as second:
        assert await world.layers.snapshots.list() == [kept.id]
        assert (await second.snapshots.get("N", kept.id)).snapshot == kept


async def test_files_that_are_being_kept_are_nobodys_orphans(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await box_with(engine, world)
    go_on = asyncio.Event()
    usage = world.layers.snapshots.usage

    async def slow(id: str) -> int:
        await go_on.wait()
        return await usage(id)

    monkeypatch.setattr(world.layers.snapshots, "usage", slow)
    taking = asyncio.create_task(engine.snapshots.take(box, TakeSnapshot()))
    while not await world.layers.snapshots.list():
        await asyncio.sleep(0)
    await engine.snapshots.tidy()
    go_on.set()
    assert await world.layers.snapshots.list() == [(await taking).id]


@pytest.mark.parametrize(
    "wanted",
    [
        TakeSnapshot(name="x" * 201),
        TakeSnapshot(name="a\nb"),
        TakeSnapshot(labels={"a=": "b"}),
        TakeSnapshot(ttl_ms=0),
        TakeSnapshot(ttl_ms=-5),
        TakeSnapshot(ttl_ms=1 << 60),
    ],
)
async def test_what_is_malformed_is_refused_and_nothing_is_made(
    engine: Engine, world: World, wanted: TakeSnapshot
) -> None:
    with pytest.raises(ValidationFailedError):
        await engine.snapshots.take(engine.sandbox("N", "box"), wanted)
    assert world.runtime.starts == 0


async def test_a_comparison_wakes_nothing_and_leaves_no_snapshot(
    engine: Engine, world: World
) -> None:
    box = await box_with(engine, world, file="then")
    snapshot = await engine.snapshots.take(box, TakeSnapshot())
    (folder(world, box) / "new").touch()
    await box.stop()
    diff = await engine.snapshots.diff(box, snapshot.id)
    assert ("/new", "created") in [(c.path, c.kind) for c in diff]
    assert box.is_in(State.STOPPED)
    assert await world.layers.snapshots.list() == [snapshot.id]
    with pytest.raises(SandboxNotFoundError):
        await engine.snapshots.diff(engine.sandbox("N", "none"), snapshot.id)


async def test_states_of_two_images_are_not_compared(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is what differs from its image: what the images themselves differ in would be left out."""

    async def obtain(_: bare.BareImages, reference: str) -> bare.BareImage:
        return bare.BareImage(reference, digest=f"sha256:{reference}")

    monkeypatch.setattr(bare.BareImages, "obtain", obtain)
    box = await box_with(engine, world, file="then")
    snapshot = await engine.snapshots.take(box, TakeSnapshot())
    await box.configure(SandboxOptions(image="another"))
    await engine.snapshots.diff(box, snapshot.id)
    await box.stop()
    await box.ensure_running()
    for compare in (engine.snapshots.diff, engine.snapshots.patch):
        with pytest.raises(ValidationFailedError, match="files are of another") as caught:
            await compare(box, snapshot.id)
        assert caught.value.context["field"] == "since"


async def test_calls_meanwhile_wait_and_work(engine: Engine, world: World) -> None:
    box = await box_with(engine, world)
    taken, stopped, _ = await asyncio.gather(
        engine.snapshots.take(box, TakeSnapshot()), box.stop(), box.ensure_running()
    )
    assert stopped
    assert (await engine.snapshots.get("N", taken.id)).snapshot == taken
    await asyncio.gather(engine.snapshots.take(box, TakeSnapshot()), box.destroy())
    assert world.runtime.paused == set()
