"""On a real S3 server, and on endpoints that fail."""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.storage import bucket_vault
from atoll.storage.bucket_vault import BucketVault
from atoll.storage.buckets import objects
from atoll.storage.buckets.objects import BucketError, Objects
from atoll.storage.buckets.options import Credentials, Origin, Source, origin
from atoll.storage.intents import Intents
from integration import endpoints
from integration.buckets import BUCKET, Server, serving

ID, OTHER = (f"5d5c7d5e-0000-4000-8000-00000000000{n}" for n in range(2))
NEIGHBOURS = (f"backups/{ID}x/data.00000", f"backups/{OTHER}/meta.json", "backups", "mine")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_vault, "PART", 100_000)


def opened(endpoint: Origin | str, folder: Path, key: str = "k", secret: str = "s") -> BucketVault:
    where = origin(endpoint) if isinstance(endpoint, str) else endpoint
    source = Source(bucket=BUCKET, endpoint=where, provider="s3")
    credentials = Credentials(access_key_id=key, secret_access_key=secret)
    vault = BucketVault(Objects.of(source, credentials), Intents(folder))
    vault.open()
    return vault


@pytest.fixture
async def vault(server: Server, tmp_path: Path) -> AsyncIterator[BucketVault]:
    client = server.client()
    for key in keys(server):
        client.delete_object(Bucket=BUCKET, Key=key)
    for key in NEIGHBOURS:
        client.put_object(Bucket=BUCKET, Key=key, Body=b"not ours")
    found = opened(server.endpoint, tmp_path / "notes", server.key, server.secret)
    yield found
    await found.close()


def keys(server: Server) -> list[str]:
    listing = server.client().list_objects_v2(Bucket=BUCKET)
    return [entry["Key"] for entry in listing.get("Contents", [])]


def ours(server: Server) -> list[str]:
    found = keys(server)
    assert set(NEIGHBOURS) <= {*found}
    return sorted(set(found) - {*NEIGHBOURS})


async def write(vault: BucketVault, data: bytes, then: Callable[[Any], None] | None = None) -> str:
    async with vault.writing(ID) as archive:
        for start in range(0, len(data), 33_333):
            await archive.write(data[start : start + 33_333])
        await archive.finish()
        await archive.publish(b'{"what": "it is"}')
        if then:
            then(archive)
        archive.keep()
    return archive.sha256


async def read(vault: BucketVault) -> bytes:
    data = bytearray()
    async with vault.opened(ID) as file:
        loop = asyncio.get_running_loop()
        while piece := await loop.run_in_executor(vault.threads, file.read, 7_777):
            data += piece
    return bytes(data)


async def recorded(*ids: str) -> set[str]:
    return {*ids}


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + 40
    while not await true():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("size", [0, 1, 100_000, 1_234_567])
async def test_an_archive_is_read_as_it_was_written(
    vault: BucketVault, server: Server, tmp_path: Path, size: int
) -> None:
    data = os.urandom(size)
    assert await write(vault, data) == hashlib.sha256(data).hexdigest()
    parts = [f"backups/{ID}/data.{n:05}" for n in range(-(-size // 100_000))]
    assert ours(server) == [*parts, f"backups/{ID}/meta.json"]
    assert await read(vault) == data
    assert await vault.account(ID) == b'{"what": "it is"}'
    assert os.listdir(tmp_path / "notes") == []


async def test_the_note_is_there_before_the_first_part_and_the_account_comes_last(
    vault: BucketVault, server: Server, tmp_path: Path
) -> None:
    async with vault.writing(ID) as archive:
        assert os.listdir(tmp_path / "notes") == [ID]
        assert ours(server) == []
        await archive.write(bytes(150_000))
        await archive.finish()
        assert ours(server) == [f"backups/{ID}/data.0000{n}" for n in range(2)]
        assert await vault.account(ID) is None
        await archive.publish(b"{}")
        archive.keep()


async def test_what_is_not_kept_goes_and_nothing_else_does(
    vault: BucketVault, server: Server
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await write(vault, os.urandom(500_000), fail)

    async def gone() -> bool:
        for id in await vault.orphans(recorded):
            await vault.delete(id)
        return await vault.orphans(recorded) == set() and not vault._busy

    await eventually(gone)
    assert ours(server) == []


async def test_a_caller_who_leaves_leaves_nothing(vault: BucketVault, server: Server) -> None:
    writing = asyncio.create_task(write(vault, os.urandom(3_000_000)))

    async def begun() -> bool:
        return bool(await asyncio.to_thread(ours, server))

    await eventually(begun)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    async def gone() -> bool:
        return not vault._busy and not await asyncio.to_thread(ours, server)

    await eventually(gone)


async def test_what_an_engine_left_that_died_is_told_by_its_note(
    vault: BucketVault, server: Server, tmp_path: Path
) -> None:
    server.client().put_object(Bucket=BUCKET, Key=f"backups/{ID}/data.00000", Body=b"half")
    assert await vault.orphans(recorded) == set(), "without a note it is not ours"
    Intents(tmp_path / "notes").add(ID)
    assert await vault.orphans(recorded) == {ID}
    await vault.delete(ID)
    assert ours(server) == []
    assert await vault.orphans(recorded) == {ID}, "a late request may still put something there"
    await vault.delete(ID)
    assert await vault.orphans(recorded) == set()


async def test_an_archive_with_a_row_stays_whatever_the_note_says(
    vault: BucketVault, server: Server, tmp_path: Path
) -> None:
    data = os.urandom(10)
    await write(vault, data)
    Intents(tmp_path / "notes").add(ID)
    assert await vault.orphans(lambda: recorded(ID)) == set()
    assert os.listdir(tmp_path / "notes") == []
    assert await read(vault) == data


async def test_an_archive_goes_after_its_row_or_stays(
    vault: BucketVault, server: Server, tmp_path: Path
) -> None:
    await write(vault, os.urandom(250_000))
    with pytest.raises(RuntimeError):
        async with vault.deleting(ID):
            raise RuntimeError
    assert len(ours(server)) == 4
    assert os.listdir(tmp_path / "notes") == []
    async with vault.deleting(ID):
        assert len(ours(server)) == 4
        assert await vault.orphans(recorded) == set(), "it goes already"
        assert await vault.account(ID) is None
    assert ours(server) == []
    with pytest.raises(BucketError):
        await read(vault)


async def test_an_archive_without_its_account_is_none(vault: BucketVault, server: Server) -> None:
    await write(vault, b"x")
    server.client().delete_object(Bucket=BUCKET, Key=f"backups/{ID}/meta.json")
    with pytest.raises(BucketError, match="not there"):
        await read(vault)


async def test_a_wrong_key_and_a_missing_bucket_are_told_in_the_servers_words(
    server: Server, tmp_path: Path
) -> None:
    wrong = opened(server.endpoint, tmp_path, server.key, "wrong")
    with server.strict(), pytest.raises(BucketError, match="signature") as caught:
        await write(wrong, b"x")
    assert caught.value.reason == "SignatureDoesNotMatch"
    source = Source(bucket="missing", endpoint=origin(server.endpoint), provider="s3")
    credentials = Credentials(access_key_id=server.key, secret_access_key=server.secret)
    missing = BucketVault(Objects.of(source, credentials), Intents(tmp_path))
    for call in (lambda: write(missing, b"x"), lambda: missing.account(OTHER)):
        with pytest.raises(BucketError) as told:
            await call()
        assert told.value.reason == "NoSuchBucket"
        assert told.value.advice
    for one in (wrong, missing):
        await one.close()


@pytest.mark.parametrize(
    "behave",
    [endpoints.garbage, endpoints.page, endpoints.noise, endpoints.silence, endpoints.trickle],
)
async def test_an_endpoint_that_makes_no_sense_is_an_error_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behave: Callable[[Any], None]
) -> None:
    monkeypatch.setattr(objects, "TIMEOUT", 0.5)
    with endpoints.answering(behave) as url:
        vault = opened(url, tmp_path)
        start = time.monotonic()
        with pytest.raises(BucketError):
            await write(vault, os.urandom(300_000))
        with pytest.raises(BucketError):
            await read(vault)
        assert time.monotonic() - start < 30
        assert os.listdir(tmp_path) == [ID], "what is there is not known: the note stays"
        await vault.close()


async def test_an_endpoint_that_is_gone_is_an_error_in_time(tmp_path: Path) -> None:
    with endpoints.answering(endpoints.silence) as url:
        pass
    vault = opened(url, tmp_path)
    with pytest.raises(BucketError) as caught:
        await write(vault, os.urandom(300_000))
    assert caught.value.reason == "unreachable"
    await vault.close()


async def test_one_that_dies_in_the_middle_leaves_a_note_that_ends_when_it_is_back(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "TIMEOUT", 1.0)
    real = vault_of(server, tmp_path)
    put, calls = real._objects.put, []

    async def dying(key: str, data: bytes) -> None:
        calls.append(key)
        if len(calls) > 2:
            raise BucketError(BUCKET, "unreachable", "unreachable")
        await put(key, data)

    async def dead(_: str) -> dict[str, int]:
        raise BucketError(BUCKET, "unreachable", "unreachable")

    monkeypatch.setattr(real._objects, "put", dying)
    with monkeypatch.context() as patch:
        patch.setattr(real._objects, "sizes", dead)
        with pytest.raises(BucketError):
            await write(real, os.urandom(900_000))

        async def settled() -> bool:
            return not real._busy

        await eventually(settled)
    assert await real.orphans(recorded) == {ID}
    for _ in range(2):
        await real.delete(ID)
    assert await real.orphans(recorded) == set()
    assert not [key for key in keys(server) if key.startswith(f"backups/{ID}/")]
    await real.close()


def vault_of(server: Server, folder: Path) -> BucketVault:
    return opened(server.endpoint, folder, server.key, server.secret)
