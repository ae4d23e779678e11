import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import zstandard

from atoll.engine.storage import portable
from atoll.engine.storage.portable import Manifest
from atoll.errors import ValidationFailedError
from atoll.images.archive import Limits

MANIFEST = Manifest(
    image="base",
    digest="sha256:0",
    instance_type="lite",
    disk=1,
    sandbox="box",
    labels={"a": "b"},
    created_at=datetime(2030, 1, 1, tzinfo=UTC),
)
LIMITS = Limits(size=50_000_000, members=100)


async def stream(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "upper"
    (top / "d").mkdir(parents=True)
    (top / "d" / "big").write_bytes(os.urandom(5_000_000))
    return top


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_the_first_line_is_found_however_it_comes(size: int) -> None:
    data = portable.encode(MANIFEST) + b"rest\nof it"
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    manifest, rest = await portable.split(stream(*pieces))
    assert manifest == MANIFEST
    assert b"".join([piece async for piece in rest]) == b"rest\nof it"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"ATOLL-SNAPSHOT {}\n",
        b"ATOLL-SNAPSHOT nothing\n",
        portable.encode(MANIFEST)[:-1],
        portable.encode(MANIFEST).replace(b'"format":2', b'"format":1'),
        b"ATOLL-SNAPSHOT " + b" " * (300 << 10) + b"{}\n",
    ],
)
async def test_what_begins_otherwise_is_refused(line: bytes) -> None:
    with pytest.raises(ValidationFailedError):
        await portable.split(stream(line))


async def gathered(body: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in body])


@pytest.mark.parametrize("size", [1, 7, 32, 33, 10_000])
async def test_what_was_sealed_is_whole_however_it_comes(size: int) -> None:
    data = os.urandom(200)
    file = await gathered(portable.sealed(stream(data[:50], data[50:])))
    pieces = [file[i : i + size] for i in range(0, len(file), size)]
    assert await gathered(portable.whole(stream(*pieces))) == data


async def test_what_was_cut_or_changed_anywhere_is_not() -> None:
    file = await gathered(portable.sealed(stream(b"some data")))
    changed = [file[:i] + bytes([file[i] ^ 1]) + file[i + 1 :] for i in range(len(file))]
    for other in (*changed, *(file[:i] for i in range(len(file))), file + b"x", file[1:]):
        with pytest.raises(ValidationFailedError, match="cut or changed"):
            await gathered(portable.whole(stream(other)))


async def test_what_was_packed_is_unpacked(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    await portable.unpack(portable.packed(folder), tmp_path / "again", LIMITS)
    assert (tmp_path / "again/d/big").read_bytes() == (folder / "d/big").read_bytes()


async def test_a_reader_that_leaves_ends_the_packing(folder: Path) -> None:
    async for _ in portable.packed(folder):
        break
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        body = portable.packed(folder)
        await anext(body)
        del body
    async with asyncio.timeout(10):
        while len(os.listdir("/proc/self/fd")) > before:
            await asyncio.sleep(0.01)


async def test_a_sender_that_breaks_off_ends_the_unpacking(folder: Path, tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        async for piece in portable.packed(folder):
            yield piece[: len(piece) // 2]
            raise ConnectionError

    (tmp_path / "again").mkdir()
    with pytest.raises(ConnectionError):
        await portable.unpack(broken(), tmp_path / "again", LIMITS)


async def test_a_kilobyte_that_stands_for_gigabytes_is_stopped(tmp_path: Path) -> None:
    coder = zstandard.ZstdCompressor(level=3).compressobj()
    header = b"files/f".ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2
    bomb = coder.compress(header + b"\0" * 400_000_000) + coder.flush()
    assert len(bomb) < 100_000
    (tmp_path / "again").mkdir()
    with pytest.raises(ValidationFailedError):
        await portable.unpack(stream(bomb), tmp_path / "again", LIMITS)


@pytest.mark.parametrize("data", [b"", b"no archive", zstandard.compress(b"no archive" * 99)])
async def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "again").mkdir()
    with pytest.raises(ValidationFailedError):
        await portable.unpack(stream(data), tmp_path / "again", LIMITS)
