import pytest
from obstore.store import MemoryStore

from atoll.storage.buckets.objects import BucketError, Objects, failure


async def test_what_is_put_is_got_listed_and_deleted() -> None:
    objects = Objects("b", MemoryStore())
    await objects.put("folder/two", b"22")
    await objects.put("folder/one", b"1")
    await objects.put("folder-beside/x", b"")
    assert list((await objects.sizes("folder")).items()) == [("folder/one", 1), ("folder/two", 2)]
    assert (await objects.get("folder/two"), objects.read("folder/one")) == (b"22", b"1")
    await objects.delete("folder/one")
    await objects.delete("folder/one")
    assert await objects.get("folder/one") is None
    with pytest.raises(BucketError):
        objects.read("folder/one")
    objects.close()


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (
            ValueError(
                "x status code: 403 F: <Error><Code>AccessDenied</Code><Message>No</Message>"
            ),
            "AccessDenied",
            "AccessDenied: No",
        ),
        (FileNotFoundError("404"), "NoSuchKey", "there is no such object"),
        (FileNotFoundError("<Code>NoSuchBucket</Code>"), "NoSuchBucket", "NoSuchBucket: refused"),
        (ValueError("status code: 503 x"), "HTTP 503", "its server answers with status 503"),
        (ValueError("operation timed out"), "unreachable", "no answer in time"),
        (ValueError("error sending request"), "unreachable", "unreachable"),
        (ValueError("odd\n\nDebug source:\n internals"), "failed", "odd"),
    ],
)
def test_errors_say_what_the_server_said(error: Exception, reason: str, message: str) -> None:
    told = failure("b", error)
    assert (told.reason, str(told)) == (reason, f"bucket 'b': {message}")
    assert "internals" not in str(told)
