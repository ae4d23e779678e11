import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from atoll.engine.engine import Engine
from atoll.engine.storage import backups
from atoll.engine.store import record as rules
from atoll.errors import (
    BackupCreateFailedError,
    BackupExpiredError,
    BackupNotFoundError,
    BackupRestoreFailedError,
    InvalidBackupConfigError,
    NoSpaceError,
    OperationInterruptedError,
    SecurityError,
)
from atoll.wire.backups import CreateBackup, ListBackups, RestoreBackup
from atoll.wire.sandbox import CustomInstance, SandboxOptions
from integration.engine.conftest import Opener
from integration.engine.packing import TAR, Inside
from integration.engine.scripted import World

WANTED = CreateBackup(dir="/workspace/")


@pytest.fixture
def inside(world: World) -> Inside:
    return Inside(world)


def archives(world: World) -> set[str]:
    return {path.name for path in (world.state_dir / "backups").iterdir()}


@pytest.mark.parametrize("compression", ["zstd", "gzip", "none"])
async def test_what_was_packed_is_unpacked(
    engine: Engine, world: World, inside: Inside, compression: str
) -> None:
    box = engine.sandbox("N", "box")
    wanted = CreateBackup(dir="/workspace/", compression=compression, name="n", excludes=["x"])
    made = await engine.backups.create(box, wanted)
    assert (made.dir, made.files, made.content_size, made.skipped) == ("/workspace", 3, 99, ["s"])
    assert made.expires_at == made.created_at + timedelta(days=3)
    assert archives(world) == {made.id}
    assert (world.state_dir / "backups" / made.id).stat().st_size == made.size
    done = await engine.backups.restore(box, RestoreBackup(backup=made.id, dir="/tmp/other"))
    assert (done.dir, done.files) == ("/tmp/other", 3)
    assert inside.unpacked == [TAR]
    packed, unpacked = (h for h in inside.seen if h["op"].startswith("fs."))
    assert (packed["path"], packed["excludes"], packed["user"]) == ("/workspace", ["x"], "0:0")
    assert packed["max_content"] == backups.MAX_EXPANSION * box.info(box.entry.existing).limits.disk
    assert (unpacked["path"], unpacked["user"]) == ("/tmp/other", "0:0")


async def test_what_the_agent_refuses_is_told_and_leaves_nothing(
    engine: Engine, world: World, inside: Inside
) -> None:
    box = engine.sandbox("N", "box")
    made = await engine.backups.create(box, WANTED)
    inside.error = SecurityError("a link")
    with pytest.raises(SecurityError):
        await engine.backups.create(box, WANTED)
    with pytest.raises(SecurityError):
        await engine.backups.restore(box, RestoreBackup(backup=made.id))
    assert archives(world) == {made.id}


async def test_an_archive_that_breaks_off_is_none(
    engine: Engine, world: World, inside: Inside
) -> None:
    inside.cut = True
    with pytest.raises((OperationInterruptedError, BackupCreateFailedError)):
        await engine.backups.create(engine.sandbox("N", "box"), WANTED)
    assert archives(world) == set()
    assert (await engine.backups.list("N", ListBackups())).backups == []


async def test_an_archive_is_no_larger_than_the_disk_of_its_sandbox(
    engine: Engine, world: World, inside: Inside
) -> None:
    """A file with a hole of terabytes takes nothing there: the host's disk would be full of zeros."""
    inside.packed = bytes(17_000_000)
    box = engine.sandbox("N", "box")
    small = CustomInstance(vcpu=1, memory_mib=64, disk_mb=16)
    await box.configure(SandboxOptions(instance_type=small))
    with pytest.raises(BackupCreateFailedError, match="archive is larger than 16,000,000 bytes"):
        await engine.backups.create(box, CreateBackup(dir="/workspace", compression="none"))
    assert archives(world) == set()
    await engine.backups.create(box, WANTED)


async def test_what_compresses_to_nothing_has_an_end_too(
    engine: Engine, world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "MAX_EXPANSION", 1)
    inside.packed = bytes(17_000_000)
    box = engine.sandbox("N", "box")
    small = CustomInstance(vcpu=1, memory_mib=64, disk_mb=16)
    await box.configure(SandboxOptions(instance_type=small))
    with pytest.raises(BackupCreateFailedError, match="holes"):
        await engine.backups.create(box, WANTED)
    assert archives(world) == set()


@pytest.mark.parametrize("account", [b"{", b'{"files": "many"}', b"\xff"])
async def test_an_agents_malformed_account_is_told_as_such(
    engine: Engine, world: World, inside: Inside, account: bytes
) -> None:
    inside.account = account
    with pytest.raises(OperationInterruptedError):
        await engine.backups.create(engine.sandbox("N", "box"), WANTED)
    assert archives(world) == set()


async def test_a_damaged_archive_is_found_before_anything_is_replaced(
    engine: Engine, world: World, inside: Inside
) -> None:
    box = engine.sandbox("N", "box")
    made = await engine.backups.create(box, CreateBackup(dir="/tmp", compression="none"))
    file = world.state_dir / "backups" / made.id
    data = bytearray(file.read_bytes())
    data[5000] ^= 1
    file.write_bytes(data)
    with pytest.raises(BackupRestoreFailedError, match="damaged"):
        await engine.backups.restore(box, RestoreBackup(backup=made.id))
    file.write_bytes(data[:-1])
    with pytest.raises(BackupRestoreFailedError, match="damaged"):
        await engine.backups.restore(box, RestoreBackup(backup=made.id))
    assert inside.unpacked == []


async def test_a_backup_that_cannot_be_recorded_leaves_no_archive(
    engine: Engine, world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise NoSpaceError("full")

    monkeypatch.setattr(engine.backups.shelf, "add", fail)
    with pytest.raises(NoSpaceError):
        await engine.backups.create(engine.sandbox("N", "box"), WANTED)
    assert archives(world) == set()


async def test_ids_are_checked_and_belong_to_a_namespace(
    engine: Engine, world: World, inside: Inside
) -> None:
    box = engine.sandbox("N", "box")
    made = await engine.backups.create(box, WANTED)
    for id in ("", "../x", "x" * 500, "nonsense"):
        with pytest.raises(InvalidBackupConfigError):
            await engine.backups.get("N", id)
    with pytest.raises(BackupNotFoundError):
        await engine.backups.get("M", made.id)
    await engine.backups.delete("M", made.id)
    assert await engine.backups.get("N", made.id) == made
    await engine.backups.delete("N", made.id)
    await engine.backups.delete("N", made.id)
    assert archives(world) == set()


async def test_it_ends_when_its_time_is_over(
    engine: Engine, world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = engine.sandbox("N", "box")
    short = await engine.backups.create(box, CreateBackup(dir="/tmp", ttl_ms=60_000))
    kept = await engine.backups.create(box, WANTED)
    later = rules.now() + timedelta(seconds=90)
    monkeypatch.setattr(rules, "now", lambda: later)
    with pytest.raises(BackupExpiredError):
        await engine.backups.restore(box, RestoreBackup(backup=short.id))
    assert (await engine.backups.list("N", ListBackups())).backups == [kept]
    await engine.backups.tidy()
    assert archives(world) == {kept.id}


async def test_what_a_killed_engine_did_not_record_is_removed(
    opener: Opener, world: World, inside: Inside
) -> None:
    async with opener() as first:
        kept = await first.backups.create(first.sandbox("N", "box"), WANTED)
        (world.state_dir / "backups/.new-half").touch()
        (world.state_dir / "backups/5d5c7d5e-0000-4000-8000-000000000000").touch()
    async with opener() as second:
        assert archives(world) == {kept.id}
        assert await second.backups.get("N", kept.id) == kept


async def test_an_archive_that_is_being_made_is_nobodys_orphan(
    engine: Engine, world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, go_on = asyncio.Event(), asyncio.Event()
    add = engine.backups.shelf.add

    async def slow(*arguments: Any) -> None:
        stored.set()
        await go_on.wait()
        await add(*arguments)

    monkeypatch.setattr(engine.backups.shelf, "add", slow)
    making = asyncio.create_task(engine.backups.create(engine.sandbox("N", "box"), WANTED))
    await stored.wait()
    await engine.backups.tidy()
    go_on.set()
    assert archives(world) == {(await making).id}


async def test_two_at_once_do_not_meet(engine: Engine, world: World, inside: Inside) -> None:
    box = engine.sandbox("N", "box")
    made = await asyncio.gather(*(engine.backups.create(box, WANTED) for _ in range(5)))
    assert archives(world) == {backup.id for backup in made}
    assert len({backup.sha256 for backup in made}) == 1
    assert json.loads(json.dumps(made[0].to_dict()))["id"] == made[0].id


async def test_a_caller_who_leaves_parts_no_row_from_its_archive(
    engine: Engine, world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store was told it keeps, whoever waits for it."""
    add, told = engine.backups.shelf.add, asyncio.Event()

    async def slow(*arguments: Any) -> None:
        told.set()
        await asyncio.sleep(0.05)
        await add(*arguments)

    monkeypatch.setattr(engine.backups.shelf, "add", slow)
    making = asyncio.create_task(engine.backups.create(engine.sandbox("N", "box"), WANTED))
    await told.wait()
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    (made,) = (await engine.backups.list("N", ListBackups())).backups
    assert archives(world) == {made.id}
