"""One suite for both kinds of bucket: a folder, and a real S3 server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from atoll.errors import FilesystemError, ValidationFailedError
from atoll.workers.buckets.bucket import Bucket
from atoll.workers.buckets.opening import opened
from atoll.workers.buckets.values import UploadedPart
from atoll.workers.wrangler import Bucket as Entry
from integration.buckets import BUCKET, Server, serving

ENTRY = Entry("DATA", BUCKET)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def values(server: Server) -> dict[str, str]:
    return {"R2_ENDPOINT": server.endpoint, "R2_ACCESS_KEY_ID": server.key,
            "R2_SECRET_ACCESS_KEY": server.secret}  # fmt: skip


@pytest.fixture(params=["folder", "server"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    if request.param == "folder":
        return opened([ENTRY], tmp_path, {}, local=True)["DATA"]
    server: Server = request.getfixturevalue("server")
    client = server.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for entry in page.get("Contents", []):
            client.delete_object(Bucket=BUCKET, Key=entry["Key"])
    return opened([ENTRY], tmp_path, values(server), local=False)["DATA"]


async def test_what_is_put_is_got(bucket: Bucket) -> None:
    put = await bucket.put(
        "a/ünï.json", '{"x": 1}', http_metadata={"content_type": "application/json"},
        custom_metadata={"by": "test"},
    )  # fmt: skip
    assert (put.key, put.size) == ("a/ünï.json", 8)
    found = await bucket.get("a/ünï.json")
    assert found is not None
    assert (await found.json(), found.etag, found.custom_metadata) == (
        {"x": 1},
        put.etag,
        {"by": "test"},
    )
    head = await bucket.head("a/ünï.json")
    assert head == put
    assert head is not None
    assert head.http_metadata["content_type"] == "application/json"
    assert await bucket.get("a/none") is None
    assert await bucket.head("a") is None
    await bucket.delete(["a/ünï.json", "a/none"])
    assert await bucket.head("a/ünï.json") is None


async def test_parts_of_an_object_and_streams(bucket: Bucket) -> None:
    async def stream() -> AsyncIterator[bytes]:
        for number in range(30):
            yield bytes([number]) * 100_000

    assert (await bucket.put("big", stream())).size == 3_000_000
    part = await bucket.get("big", offset=99_999, length=3)
    assert part is not None
    assert (await part.bytes(), part.range, part.size) == (b"\0\1\1", (99_999, 3), 3_000_000)
    rest = await bucket.get("big", offset=2_999_999)
    assert rest is not None
    assert await rest.bytes() == bytes([29])
    whole = await bucket.get("big")
    assert whole is not None
    assert sum([len(piece) async for piece in whole.body]) == 3_000_000
    empty = await bucket.put("empty", None)
    assert empty.size == 0


async def test_listings_are_sorted_paged_and_grouped(bucket: Bucket) -> None:
    keys = ["a", "ab/1", "ab/2", "ab/c/3", "abc", "b/1", "c"]
    for key in reversed(keys):
        await bucket.put(key, key)
    assert [one.key for one in (await bucket.list()).objects] == sorted(keys)
    assert [one.key for one in (await bucket.list(prefix="ab")).objects] == keys[1:5]
    grouped = await bucket.list(delimiter="/")
    assert ([one.key for one in grouped.objects], grouped.delimited_prefixes) == (
        ["a", "abc", "c"], ["ab/", "b/"],
    )  # fmt: skip
    seen, cursor = list[str](), None
    while True:
        page = await bucket.list(delimiter="/", limit=2, cursor=cursor)
        seen += [one.key for one in page.objects] + page.delimited_prefixes
        cursor = page.cursor
        if not page.truncated:
            break
    assert sorted(seen) == ["a", "ab/", "abc", "b/", "c"]
    assert (await bucket.list(prefix="none")).objects == []


async def test_an_upload_in_parts_is_seen_when_it_is_complete(bucket: Bucket) -> None:
    upload = await bucket.create_multipart_upload("movie", custom_metadata={"a": "b"})
    first = await upload.upload_part(1, b"1" * 100)
    again = bucket.resume_multipart_upload("movie", upload.upload_id)
    third = await again.upload_part(3, b"3")
    await again.upload_part(9, b"dropped")
    assert (await bucket.list()).objects == []
    with pytest.raises(ValidationFailedError):
        await again.complete([first, UploadedPart(part_number=2, etag="x")])
    made = await again.complete([third, first])
    assert (made.key, made.size, made.custom_metadata) == ("movie", 101, {"a": "b"})
    found = await bucket.get("movie")
    assert found is not None
    assert await found.text() == "1" * 100 + "3"
    with pytest.raises(ValidationFailedError):
        await upload.upload_part(1, b"late")
    other = await bucket.create_multipart_upload("other")
    await other.upload_part(1, b"x")
    await other.abort()
    await other.abort()
    assert [one.key for one in (await bucket.list()).objects] == ["movie"]
    assert list(bucket._storing.entries(".atoll-multipart/", None)) == []


@pytest.mark.parametrize(
    "key", ["", "/a", "a//b", "../x", "a/./b", "a\nb", "x" * 2000, ".atoll-multipart/x"]
)
async def test_what_is_no_key_is_refused_alike(bucket: Bucket, key: str) -> None:
    for call in (bucket.put(key, b""), bucket.get(key), bucket.head(key), bucket.delete(key)):
        with pytest.raises(ValidationFailedError):
            await call


async def test_wrong_keys_are_an_error_of_ours_without_the_secret(
    server: Server, tmp_path: Path
) -> None:
    wrong = values(server) | {"R2_SECRET_ACCESS_KEY": "not-the-secret"}
    bucket = opened([ENTRY], tmp_path, wrong, local=False)["DATA"]
    with server.strict(), pytest.raises(FilesystemError) as caught:
        await bucket.put("x", b"y")
    assert "not-the-secret" not in str(caught.value)
