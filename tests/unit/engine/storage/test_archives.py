import io
import os
import resource
from collections.abc import AsyncIterator

import pytest

from atoll.engine.storage import archives
from atoll.errors import BackupRestoreFailedError, InvalidBackupConfigError

MB = 1 << 20


async def pieces(data: bytes, size: int = 70_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def compressed(data: bytes, compression: str) -> bytes:
    return b"".join([piece async for piece in archives.compressed(pieces(data), compression)])


@pytest.mark.parametrize("compression", archives.COMPRESSIONS)
@pytest.mark.parametrize("data", [b"", b"x", os.urandom(3 * MB), bytes(5 * MB)])
async def test_what_was_compressed_comes_back(compression: str, data: bytes) -> None:
    archive = archives.Checked(io.BytesIO(await compressed(data, compression)))
    assert b"".join([piece async for piece in archive.decompressed(compression)]) == data


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
async def test_a_small_archive_of_much_is_unpacked_in_flat_memory(compression: str) -> None:
    """300 MB of zeros are kilobytes: whoever unpacks a kilobyte at once holds all of it."""
    body = await compressed(bytes(300 * MB), compression)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = largest = 0
    async for piece in archives.Checked(io.BytesIO(body)).decompressed(compression):
        size += len(piece)
        largest = max(largest, len(piece))
    assert size == 300 * MB
    assert largest <= archives.PIECE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
async def test_what_was_never_compressed_is_an_error(compression: str) -> None:
    with pytest.raises(BackupRestoreFailedError):
        async for _ in archives.Checked(io.BytesIO(b"garbage" * 99)).decompressed(compression):
            pass


@pytest.mark.parametrize("compression", archives.COMPRESSIONS)
async def test_every_byte_counts_for_the_checksum(compression: str) -> None:
    """Also what stands behind the end of the compressed data."""
    digests = set()
    body = await compressed(b"data" * 1000, compression)
    for archive in (body, body + b"more"):
        checked = archives.Checked(io.BytesIO(archive))
        try:
            async for _ in checked.decompressed(compression):
                pass
        except BackupRestoreFailedError:
            continue
        digests.add(checked.hex())
    assert len(digests) == (1 if compression == "gzip" else 2)


def test_an_unknown_compression_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidBackupConfigError) as caught:
        archives.check("rar")
    assert "zstd, gzip, none" in (caught.value.suggestion or "")
