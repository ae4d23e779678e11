"""Blobs are read whatever they are compressed with, and a bomb stops where the unpacker stops."""

import asyncio
import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from atoll.errors import InvalidImageError
from atoll.images.archive import Limits
from atoll.images.blobs import opened
from atoll.images.layers import unpack

OCI = "application/vnd.oci.image.layer.v1.tar"
DOCKER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
needs_zstd = pytest.mark.skipif(not shutil.which("zstd"), reason="zstd is not installed")


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-q"], input=data, capture_output=True, check=True).stdout


async def read(path: Path, media_type: str) -> bytes:
    async with opened(path, media_type) as source:
        return await asyncio.to_thread(source.read)


@pytest.mark.parametrize("media_type", [f"{OCI}+gzip", DOCKER])
async def test_gzip_is_read(tmp_path: Path, media_type: str) -> None:
    (tmp_path / "blob").write_bytes(gzip.compress(b"data"))
    assert await read(tmp_path / "blob", media_type) == b"data"


async def test_plain_is_read(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"data")
    assert await read(tmp_path / "blob", OCI) == b"data"


@needs_zstd
async def test_zstd_is_read(tmp_path: Path) -> None:
    data = os.urandom(1 << 20)
    (tmp_path / "blob").write_bytes(zstd(data))
    assert await read(tmp_path / "blob", f"{OCI}+zstd") == data


@needs_zstd
async def test_damaged_zstd_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(zstd(os.urandom(1 << 20))[:-1000])
    with pytest.raises(InvalidImageError, match="damaged"):
        await read(tmp_path / "blob", f"{OCI}+zstd")


async def test_an_unknown_compression_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidImageError, match="brotli"):
        await read(tmp_path / "blob", f"{OCI}+brotli")


@pytest.mark.parametrize("kind", ["gzip", pytest.param("zstd", marks=needs_zstd)])
async def test_a_bomb_stops_at_the_limit(tmp_path: Path, kind: str) -> None:
    header = b"f".ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2
    header = (header + b"%011o\0" % (64 << 20) + b"0" * 11 + b"\0").ljust(512, b"\0")
    checksum = sum(header) + 8 * 32
    header = header[:148] + b"%06o\0 " % checksum + header[156:]
    data = header + bytes(64 << 20)
    (tmp_path / "blob").write_bytes(gzip.compress(data) if kind == "gzip" else zstd(data))
    with pytest.raises(InvalidImageError, match="bytes unpacked"):
        async with opened(tmp_path / "blob", f"{OCI}+{kind}") as source:
            await asyncio.to_thread(unpack, source, tmp_path / "layer", "", Limits(size=1 << 20))


async def test_damaged_gzip_is_a_typed_error(tmp_path: Path) -> None:
    compressed = bytearray(gzip.compress(os.urandom(4096)))
    compressed[100:110] = bytes(10)
    (tmp_path / "blob").write_bytes(bytes(compressed))
    with pytest.raises(InvalidImageError):
        async with opened(tmp_path / "blob", DOCKER) as source:
            await asyncio.to_thread(unpack, source, tmp_path / "layer", "", Limits())
