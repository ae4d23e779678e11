import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from atoll.engine.storage.local_buckets import LocalBuckets
from atoll.host import unix
from atoll.sdk import _io
from atoll.server import lease
from atoll.server.lease import Leases


class Ended:
    """Counts how often the last lease has ended."""

    def __init__(self) -> None:
        self.times: list[None] = []

    def __call__(self) -> None:
        self.times.append(None)


async def take(path: Path) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_unix_connection(path)
    assert json.loads(await reader.readline()) == {"pid": 1}
    return writer


async def until(ended: Ended) -> None:
    async with asyncio.timeout(2):
        while not ended.times:
            await asyncio.sleep(0.005)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lease.sock"


async def test_the_last_lease_ends_the_engine_once(path: Path) -> None:
    ended = Ended()
    leases = Leases(unix.listen(path), {"pid": 1}, ended, LocalBuckets({}).offered)
    await leases.open()
    first, second = await take(path), await take(path)
    first.close()
    await asyncio.sleep(0.05)
    assert ended.times == []
    second.close()
    await until(ended)
    with pytest.raises(OSError):
        await asyncio.open_unix_connection(path)
    await leases.close()
    assert len(ended.times) == 1


async def test_an_engine_that_is_not_private_goes_on(path: Path) -> None:
    leases = Leases(unix.listen(path), {"pid": 1}, None, LocalBuckets({}).offered)
    await leases.open()
    (await take(path)).close()
    await asyncio.sleep(0.02)
    (await take(path)).close()
    await leases.close()


async def test_a_private_engine_nobody_came_to_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "FIRST_LEASE", 0.05)
    ended = Ended()
    leases = Leases(unix.listen(path), {"pid": 1}, ended, LocalBuckets({}).offered)
    await leases.open()
    await until(ended)
    await leases.close()


async def test_an_open_lease_outlives_the_first_wait(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "FIRST_LEASE", 0.05)
    ended = Ended()
    leases = Leases(unix.listen(path), {"pid": 1}, ended, LocalBuckets({}).offered)
    await leases.open()
    writer = await take(path)
    await asyncio.sleep(0.1)
    assert ended.times == []
    writer.close()
    await until(ended)
    await leases.close()


async def test_closing_ends_open_leases_without_a_word(path: Path) -> None:
    ended = Ended()
    leases = Leases(unix.listen(path), {"pid": 1}, ended, LocalBuckets({}).offered)
    await leases.open()
    reader, writer = await asyncio.open_unix_connection(path)
    await reader.readline()
    await leases.close()
    assert await reader.read() == b""
    writer.close()
    await asyncio.sleep(0.02)
    assert ended.times == []


async def test_folders_are_buckets_as_long_as_the_lease_that_offers_them(path: Path) -> None:
    buckets = LocalBuckets({})
    leases = Leases(unix.listen(path), {"pid": 1}, None, buckets.offered)
    await leases.open()
    taken = await asyncio.to_thread(_io.take_lease, path, 5)
    assert taken
    for name in ("DATA", "OTHER"):  # the last one counts
        await asyncio.to_thread(_io.offer, taken[0], {name: "/srv"}, 5)
    assert buckets.find("OTHER") == Path("/srv")
    assert "DATA" not in buckets
    taken[0].close()
    async with asyncio.timeout(5):
        while "OTHER" in buckets:
            await asyncio.sleep(0.005)
    await leases.close()


@pytest.mark.parametrize("line", [b"garbage\n", b'{"localBuckets": 5}\n', b"x" * 200_000])
async def test_a_line_that_is_no_offer_ends_the_lease(path: Path, line: bytes) -> None:
    leases = Leases(unix.listen(path), {"pid": 1}, None, LocalBuckets({}).offered)
    await leases.open()
    reader, writer = await asyncio.open_unix_connection(path)
    await reader.readline()
    writer.write(line)
    async with asyncio.timeout(5):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
    await leases.close()
