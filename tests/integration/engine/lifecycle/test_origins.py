import pytest

from atoll.engine.engine import Engine
from atoll.errors import SnapshotNotFoundError
from atoll.wire.sandbox import SandboxOptions
from atoll.wire.snapshots import Snapshot, TakeSnapshot
from integration.engine.scripted import World

UNKNOWN = "00000000-0000-4000-8000-000000000000"


async def taken(engine: Engine, world: World) -> Snapshot:
    box = engine.sandbox("N", "origin")
    await box.configure(SandboxOptions(image="mine"))
    await box.ensure_running()
    assert box.record
    (world.state_dir / "layers" / box.record.layer_id / "f").write_text("prepared")
    return await engine.snapshots.take(box, TakeSnapshot())


async def start(engine: Engine, id: str, image: str) -> str:
    """Return the layer of a sandbox that was started with this image."""
    box = engine.sandbox("N", id)
    await box.configure(SandboxOptions(image=image))
    await box.ensure_running()
    assert box.record
    return box.record.layer_id


async def test_a_new_sandbox_begins_with_its_files_on_its_image(
    engine: Engine, world: World
) -> None:
    snapshot = await taken(engine, world)
    layer = await start(engine, "new", snapshot.id)
    assert (world.state_dir / "layers" / layer / "f").read_text() == "prepared"
    box = engine.sandbox("N", "new")
    assert (await engine.info("N", "new")).image == "mine"
    later = await engine.snapshots.take(box, TakeSnapshot())
    assert later.parent == snapshot.id


async def test_it_starts_again_when_the_snapshot_is_gone(engine: Engine, world: World) -> None:
    snapshot = await taken(engine, world)
    await start(engine, "new", snapshot.id)
    await engine.snapshots.delete("N", snapshot.id)
    await engine.sandbox("N", "new").stop()
    layer = await start(engine, "new", snapshot.id)
    assert (world.state_dir / "layers" / layer / "f").exists()


async def test_a_sandbox_that_has_files_keeps_them(engine: Engine, world: World) -> None:
    snapshot = await taken(engine, world)
    layer = await start(engine, "old", "other")
    await engine.sandbox("N", "old").stop()
    assert await start(engine, "old", snapshot.id) == layer
    assert not (world.state_dir / "layers" / layer / "f").exists()


async def test_one_of_another_namespace_or_none_is_refused(engine: Engine, world: World) -> None:
    snapshot = await taken(engine, world)
    with pytest.raises(SnapshotNotFoundError):
        await start(engine, "new", UNKNOWN)
    stranger = engine.sandbox("Other", "new")
    await stranger.configure(SandboxOptions(image=snapshot.id))
    with pytest.raises(SnapshotNotFoundError):
        await stranger.ensure_running()
