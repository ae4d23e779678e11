from datetime import timedelta

import pytest

from atoll.engine.engine import Engine
from atoll.engine.store import record as rules
from atoll.wire.snapshots import TakeSnapshot
from atoll.wire.volumes import CreateVolume
from integration.engine.scripted import World


async def test_everything_that_takes_disk_is_told_with_sums(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = engine.sandbox("N", "box")
    await box.ensure_running()
    assert box.record

    async def usage(layer_id: str) -> int:
        return 70 if layer_id.startswith("vol-") else 5

    async def snapshot_usage(_id: str) -> int:
        return 30

    monkeypatch.setattr(world.layers, "usage", usage)
    monkeypatch.setattr(world.layers.snapshots, "usage", snapshot_usage)
    taken = await engine.snapshots.take(box, TakeSnapshot(ttl_ms=60_000))
    await engine.volumes.create("N", CreateVolume(name="v", size=100_000_000))
    await engine.sandbox("Other", "box").ensure_running()
    told = await engine.disk.usage("N", 2)
    assert [(e.kind, e.id, e.size, e.limit) for e in told] == [
        ("volume", "v", 70, 100_000_000),
        ("snapshot", taken.id, 30, None),
    ]
    assert told.entries[1].expires_at == taken.expires_at
    assert told.sizes == {"volume": 70, "snapshot": 30, "sandbox": 5}
    assert told.counts == {"volume": 1, "snapshot": 1, "sandbox": 1}


async def test_what_nobody_needs_is_told_first_and_removed_when_asked(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = engine.sandbox("N", "box")
    await box.ensure_running()
    assert box.record
    kept = await engine.snapshots.take(box, TakeSnapshot())
    ended = await engine.snapshots.take(box, TakeSnapshot(ttl_ms=1_000))
    await engine.volumes.create("N", CreateVolume(name="v"))
    await world.layers.create("lost", 1)
    await world.layers.create("building", 1)
    engine.snapshots._shared.lifecycle.building.add("building")
    await world.layers.snapshots.take(box.record.layer_id, "lost-too")
    (world.state_dir / "backups" / "nobody").write_bytes(b"x")
    later = rules.now() + timedelta(minutes=1)
    monkeypatch.setattr(rules, "now", lambda: later)

    told = await engine.disk.collect(dry_run=True)
    assert {(i.kind, i.id, i.reason) for i in told} == {
        ("snapshot", ended.id, "expired"),
        ("snapshot", "lost-too", "orphaned"),
        ("archive", "nobody", "orphaned"),
        ("layer", "lost", "orphaned"),
    }
    assert (await engine.disk.collect(dry_run=True)).items == told.items, "it only told"
    assert (await engine.disk.collect(dry_run=False)).items == told.items
    assert (await engine.disk.collect(dry_run=True)).items == []
    assert {"lost", "building"} & set(await world.layers.list()) == {"building"}
    assert await world.layers.snapshots.list() == [kept.id]
    assert (await engine.volumes.get("N", "v")).name == "v"
