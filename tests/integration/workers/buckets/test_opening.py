"""Buckets of production whose endpoint fails."""

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import FilesystemError
from atoll.workers.buckets import opening
from atoll.workers.buckets.bucket import Bucket
from atoll.workers.wrangler import Bucket as Entry
from integration import endpoints
from integration.buckets import BUCKET, serving

SIZE = 100_000_000


def bucket_at(url: str, folder: Path, **values: str) -> Bucket:
    keys = {"R2_ENDPOINT": url, "R2_ACCESS_KEY_ID": "k", "R2_SECRET_ACCESS_KEY": "s", **values}
    return opening.opened([Entry("DATA", BUCKET)], folder, keys, local=False)["DATA"]


async def content(bucket: Bucket, key: str) -> bytes:
    found = await bucket.get(key)
    return await found.bytes() if found else b""


async def remaining(pieces: AsyncIterator[bytes]) -> int:
    return sum([len(piece) async for piece in pieces])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "SILENCE", 0.5)
    monkeypatch.setattr(opening, "LONGEST", 1.0)


@pytest.mark.parametrize(
    "behave",
    [
        endpoints.page,
        endpoints.noise,
        endpoints.silence,
        endpoints.trickle,
        lambda connection: None,
    ],
    ids=["page", "noise", "silence", "trickle", "closed"],
)
async def test_an_endpoint_that_makes_no_sense_is_an_error_in_time(
    impatient: None, tmp_path: Path, behave: Callable[[Any], None]
) -> None:
    with endpoints.answering(behave) as url:
        bucket, began = bucket_at(url, tmp_path), time.monotonic()
        with pytest.raises(FilesystemError):
            await bucket.put("key", "x" * 10_000_000)
        with pytest.raises(FilesystemError):
            await bucket.list()
        with pytest.raises(FilesystemError):
            await content(bucket, "key")
        with pytest.raises(FilesystemError):
            await bucket.create_multipart_upload("key")
        assert time.monotonic() - began < 50


async def test_an_endpoint_that_dies_while_an_object_is_read_is_an_error(tmp_path: Path) -> None:
    """What was read is not taken for all of it."""
    with serving() as server:
        server.client().put_object(Bucket=BUCKET, Key="key", Body=bytes(SIZE))
        relay = endpoints.Relay(server.endpoint)
        with endpoints.answering(relay) as url:
            keys = {"R2_ACCESS_KEY_ID": server.key, "R2_SECRET_ACCESS_KEY": server.secret}
            found = await bucket_at(url, tmp_path, **keys).get("key")
            assert found is not None
            pieces = aiter(found.body)
            assert await anext(pieces)
            relay.cut()
            with pytest.raises(FilesystemError):
                await remaining(pieces)
