"""Backups in a bucket of a real S3 server: what is told, what is in the bucket, what stays after."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from atoll.engine.engine import Engine
from atoll.engine.store import record as rules
from atoll.errors import (
    BackupCreateFailedError,
    BackupExpiredError,
    BackupNotFoundError,
    BackupRestoreFailedError,
    InvalidConfigError,
)
from atoll.settings import BackupSettings
from atoll.storage import bucket_vault
from atoll.storage.buckets import objects
from atoll.wire.backups import CreateBackup, DirectoryBackup, ListBackups, RestoreBackup
from integration.buckets import BUCKET, Server, serving
from integration.endpoints import Relay, answering, silence
from integration.engine.conftest import Opener
from integration.engine.packing import TAR, Inside
from integration.engine.scripted import World

WANTED = CreateBackup(dir="/workspace", compression="none")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture(autouse=True)
def empty(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_vault, "PART", 300_000)
    client = server.client()
    for key in stored(server):
        client.delete_object(Bucket=BUCKET, Key=key)


@pytest.fixture
def inside(world: World) -> Inside:
    return Inside(world)


@pytest.fixture
def second(tmp_path: Path) -> World:
    (tmp_path / "second/run").mkdir(parents=True)
    return World(tmp_path / "second")


def stored(server: Server) -> list[str]:
    listing = server.client().list_objects_v2(Bucket=BUCKET)
    return sorted(entry["Key"] for entry in listing.get("Contents", []))


def bucket(server: Server, **other: Any) -> BackupSettings:
    return BackupSettings(**{
        "bucket": BUCKET, "endpoint": server.endpoint, "access_key_id": server.key,
        "secret_access_key": server.secret, **other,
    })  # fmt: skip


def local(world: World) -> list[str]:
    return [path.name for path in (world.state_dir / "backups").iterdir()]


def notes(world: World) -> list[str]:
    return os.listdir(world.state_dir / "backup-intents")


async def made(engine: Engine, wanted: CreateBackup = WANTED) -> DirectoryBackup:
    return await engine.backups.create(engine.sandbox("N", "box"), wanted)


async def restored(engine: Engine, id: str) -> None:
    await engine.backups.restore(engine.sandbox("N", "box"), RestoreBackup(backup=id))


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + 40
    while not await true():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def tidied(engine: Engine, server: Server, *left: str) -> None:
    async def tidy() -> bool:
        await engine.backups.tidy()
        return await asyncio.to_thread(stored, server) == sorted(left)

    await eventually(tidy)


@pytest.mark.parametrize("compression", ["zstd", "gzip", "none"])
async def test_a_backup_is_in_the_bucket_and_not_here(
    opener: Opener, world: World, server: Server, inside: Inside, compression: str
) -> None:
    async with opener(backups=bucket(server)) as engine:
        found = await made(engine, CreateBackup(dir="/workspace", compression=compression))
        assert (found.bucket, found.local_bucket, found.files) == (BUCKET, False, 3)
        assert (local(world), notes(world)) == ([], [])
        assert stored(server)[-1] == f"backups/{found.id}/meta.json"
        await restored(engine, found.id)
        assert inside.unpacked == [TAR]
        assert (await engine.backups.list("N", ListBackups())).backups == [found]
        await engine.backups.delete("N", found.id)
        assert stored(server) == []
        with pytest.raises(BackupNotFoundError):
            await restored(engine, found.id)


async def test_a_caller_may_keep_it_on_the_host(
    opener: Opener, world: World, server: Server, inside: Inside
) -> None:
    async with opener(backups=bucket(server)) as engine:
        found = await made(engine, CreateBackup(dir="/workspace", local_bucket=True))
        assert found.to_dict()["localBucket"] is True
        assert (found.bucket, local(world), stored(server)) == (None, [found.id], [])
        await restored(engine, found.id)
        assert inside.unpacked == [TAR]


async def test_a_damaged_archive_is_found_before_anything_is_replaced(
    opener: Opener, server: Server, inside: Inside
) -> None:
    client = server.client()
    async with opener(backups=bucket(server)) as engine:
        found = await made(engine)
        parts = [key for key in stored(server) if "/data." in key]
        assert len(parts) == 4
        for key, body in ((parts[1], bytes(300_000)), (parts[-1], b"short")):
            whole = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            client.put_object(Bucket=BUCKET, Key=key, Body=body)
            with pytest.raises(BackupRestoreFailedError, match="damaged"):
                await restored(engine, found.id)
            client.put_object(Bucket=BUCKET, Key=key, Body=whole)
        client.delete_object(Bucket=BUCKET, Key=parts[0])
        with pytest.raises(BackupRestoreFailedError):
            await restored(engine, found.id)
        assert inside.unpacked == []


async def test_two_engines_share_a_bucket_and_only_touch_what_is_theirs(
    opener: Opener,
    world: World,
    second: World,
    server: Server,
    inside: Inside,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = server.client()
    client.put_object(Bucket=BUCKET, Key="backups/not-ours/data.00000", Body=b"x")
    other = Inside(second)
    async with opener(backups=bucket(server)) as one:
        short = await made(one, CreateBackup(dir="/tmp", ttl_ms=60_000))
        kept = await made(one)
        world.state_dir = second.state_dir  # what the opener opens next
        monkeypatch.setattr(world, "parts", second.parts)
        async with opener(backups=bucket(server)) as two:
            assert (await two.backups.list("N", ListBackups())).backups == []
            assert await two.backups.get("N", kept.id) == kept
            await restored(two, kept.id)
            assert other.unpacked == [TAR]
            with pytest.raises(BackupNotFoundError):
                await two.backups.get("M", kept.id)
            later = rules.now() + timedelta(seconds=90)
            monkeypatch.setattr(rules, "now", lambda: later)
            with pytest.raises(BackupExpiredError):
                await restored(two, short.id)
            before = stored(server)
            await two.backups.tidy()
            assert two.backups._tidying
            await two.backups._tidying
            assert stored(server) == before
        left = [key for key in before if short.id not in key]
        await tidied(one, server, *left)
        assert len(left) > 2


async def test_an_engine_that_lost_its_state_restores_what_a_caller_has_the_value_of(
    opener: Opener, world: World, server: Server, inside: Inside
) -> None:
    async with opener(backups=bucket(server)) as first:
        found = await made(first)
    (world.state_dir / "atoll.db").unlink()
    async with opener(backups=bucket(server)) as second:
        await restored(second, found.id)
        assert inside.unpacked == [TAR]
        await second.backups.delete("N", found.id)
        assert stored(server) == []


async def test_what_a_killed_engine_was_writing_is_removed_and_what_it_recorded_stays(
    opener: Opener, world: World, server: Server, inside: Inside
) -> None:
    client, half = server.client(), "5d5c7d5e-0000-4000-8000-000000000000"
    async with opener(backups=bucket(server)) as first:
        kept = await made(first)
    for key in (f"backups/{half}/data.00000", f"backups/{half}/meta.json"):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"{}")
    for id in (half, kept.id):
        (world.state_dir / "backup-intents" / id).touch()
    async with opener(backups=bucket(server)) as second:
        await tidied(second, server, *[key for key in stored(server) if kept.id in key])
        with pytest.raises(BackupNotFoundError):
            await second.backups.get("N", half)
        await restored(second, kept.id)

        async def settled() -> bool:
            await second.backups.tidy()
            return notes(world) == []

        await eventually(settled)
        assert [one async for one in second.backups.orphans()] == []


async def test_a_wrong_key_and_a_missing_bucket_are_typed_and_leave_nothing(
    opener: Opener, world: World, server: Server, inside: Inside
) -> None:
    for settings, reason in (
        (bucket(server, bucket="missing"), "NoSuchBucket"),
        (bucket(server, secret_access_key="wrong"), "SignatureDoesNotMatch"),
    ):
        with server.strict():
            async with opener(backups=settings) as engine:
                with pytest.raises(BackupCreateFailedError) as caught:
                    await made(engine)
                assert caught.value.context["reason"] == reason
                assert caught.value.suggestion
                assert (await engine.backups.list("N", ListBackups())).backups == []
                with pytest.raises(BackupRestoreFailedError) as refused:
                    await restored(engine, "5d5c7d5e-0000-4000-8000-000000000009")
                assert refused.value.context["reason"] == reason
        assert (stored(server), local(world)) == ([], [])


async def test_an_endpoint_that_dies_in_the_middle_keeps_what_was_there(
    opener: Opener,
    world: World,
    server: Server,
    inside: Inside,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "TIMEOUT", 2.0)
    relay = Relay(server.endpoint)
    with answering(relay) as url:
        async with opener(backups=bucket(server, endpoint=url)) as engine:
            found, before = await made(engine), stored(server)
            inside.packed, passed = os.urandom(20_000_000), relay.passed
            making = asyncio.create_task(made(engine))

            async def under_way() -> bool:
                return relay.passed - passed > 2_000_000

            await eventually(under_way)
            relay.cut()
            with pytest.raises(BackupCreateFailedError) as caught:
                await making
            assert caught.value.context["reason"] == "unreachable"
            with pytest.raises(BackupRestoreFailedError):
                await restored(engine, found.id)
            await engine.backups.delete("N", found.id)
            assert len(notes(world)) == 2, "one that broke off, and one that could not go"
            with pytest.raises(BackupNotFoundError):
                await engine.backups.get("N", found.id)
            assert set(before) < {*stored(server)}
    async with opener(backups=bucket(server)) as again:
        await tidied(again, server)


async def test_a_silent_endpoint_delays_no_start_and_nothing_else(
    opener: Opener, world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "TIMEOUT", 3.0)
    (world.state_dir / "backup-intents").mkdir()
    for number in range(40):
        id = f"5d5c7d5e-0000-4000-8000-0000000000{number:02}"
        (world.state_dir / "backup-intents" / id).touch()
    with answering(silence) as url:
        silent = BackupSettings(
            bucket=BUCKET, endpoint=url, access_key_id="k", secret_access_key="s"
        )
        start = time.monotonic()
        async with opener(backups=silent) as engine:
            making = [asyncio.create_task(made(engine)) for _ in range(3)]
            await made(engine, CreateBackup(dir="/tmp", local_bucket=True))
            await engine.backups.tidy()
            assert time.monotonic() - start < 3.0
            done = await asyncio.gather(*making, return_exceptions=True)
            assert {type(one) for one in done} == {BackupCreateFailedError}
            assert time.monotonic() - start < 40


async def test_backups_of_a_bucket_that_is_not_configured_any_more_stay(
    opener: Opener, server: Server, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opener(backups=bucket(server)) as first:
        found = await made(first, CreateBackup(dir="/tmp", ttl_ms=60_000))
        before = stored(server)
    async with opener() as second:
        with pytest.raises(BackupRestoreFailedError) as caught:
            await restored(second, found.id)
        assert caught.value.context["reason"] == "configuration"
        with pytest.raises(BackupRestoreFailedError):
            await second.backups.delete("N", found.id)
        later = rules.now() + timedelta(seconds=90)
        monkeypatch.setattr(rules, "now", lambda: later)
        await second.backups.tidy()
        assert stored(server) == before
    async with opener(backups=bucket(server)) as third:
        await tidied(third, server)


async def test_a_bucket_that_could_never_work_is_told_at_the_start(opener: Opener) -> None:
    with pytest.raises(InvalidConfigError):
        async with opener(backups=BackupSettings(bucket=BUCKET)):
            pass
