from pathlib import Path

import pytest

from atoll.errors import ValidationFailedError
from atoll.workers.buckets.bucket import Bucket
from atoll.workers.buckets.multipart import MAX_PARTS
from atoll.workers.buckets.opening import opened
from atoll.workers.wrangler import Bucket as Entry


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return opened([Entry("B", "bucket")], tmp_path, {}, local=True)["B"]


@pytest.mark.parametrize("id", ["", "x", "../" + "a" * 29, "A" * 32])
def test_an_id_of_an_upload_leads_nowhere_else(bucket: Bucket, id: str) -> None:
    with pytest.raises(ValidationFailedError):
        bucket.resume_multipart_upload("k", id)


async def test_an_upload_belongs_to_its_key(bucket: Bucket) -> None:
    upload = await bucket.create_multipart_upload("k")
    with pytest.raises(ValidationFailedError):
        await bucket.resume_multipart_upload("other", upload.upload_id).upload_part(1, b"x")


@pytest.mark.parametrize("number", [0, -1, MAX_PARTS + 1])
async def test_parts_are_counted_from_one(bucket: Bucket, number: int) -> None:
    upload = await bucket.create_multipart_upload("k")
    with pytest.raises(ValidationFailedError):
        await upload.upload_part(number, b"x")
