from datetime import UTC, datetime

import pytest

from atoll.errors import ValidationFailedError
from atoll.workers.buckets.bucket import checked_metadata
from atoll.workers.buckets.values import R2Object, R2ObjectBody, checked_key, strings

ABOUT = R2Object(key="k", size=2, etag="e", uploaded=datetime(2030, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("key", ["a", "a/b", "ü ü", "a..b", ".hidden", "-", "a" * 1024])
def test_keys_that_all_stores_can_hold(key: str) -> None:
    assert checked_key(key) == key


async def test_a_body_is_its_object_too() -> None:
    body = R2ObjectBody(ABOUT, iter([b"o", b"k"]), (0, 2))
    assert (body.key, body.http_etag) == ("k", '"e"')
    assert await body.text() == "ok"


def test_metadata_is_text() -> None:
    assert strings("m", None) == {}
    for wrong in ({"a": 1}, {"a": "x\r\ny"}):
        with pytest.raises(ValidationFailedError):
            strings("m", wrong)  # type: ignore[arg-type]
    with pytest.raises(ValidationFailedError):
        checked_metadata({"Content-Type": "x"}, None)
