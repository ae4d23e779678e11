from datetime import UTC, datetime

import pytest

from atoll.errors import BucketMountError
from atoll.storage.buckets import options, probe
from atoll.storage.buckets.options import Credentials, Source

KEY = Credentials(access_key_id="AKIDEXAMPLE", secret_access_key="wJalrXUtnFEMI/K7MDENG")
AT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def source(endpoint: str, prefix: str | None = None) -> Source:
    return options.source(
        bucket="bucket", endpoint=endpoint, provider=None, prefix=prefix, read_only=False, given=()
    )


def test_a_request_names_the_bucket_and_hides_the_secret() -> None:
    request = probe.signed(source("http://h:9000", "a b"), KEY, AT).decode()
    assert request.startswith("GET /bucket/?list-type=2&max-keys=1&prefix=a%20b%2F HTTP/1.1\r\n")
    assert "host: h:9000\r\n" in request
    assert "AKIDEXAMPLE/20300102/us-east-1/s3/aws4_request" in request
    assert KEY.secret_access_key not in request


def test_amazon_is_asked_by_the_buckets_host_name() -> None:
    request = probe.signed(source("https://s3.eu-west-1.amazonaws.com"), KEY, AT).decode()
    assert request.startswith("GET /?list-type=2")
    assert "host: bucket.s3.eu-west-1.amazonaws.com\r\n" in request


@pytest.mark.parametrize(
    ("answer", "reason", "text"),
    [
        (b"HTTP/1.1 403 No\r\n\r\n<Code>AccessDenied</Code><Message>not you</Message>",
         "AccessDenied", "AccessDenied: not you"),
        (b"HTTP/1.1 404 No\r\n\r\n<Code>NoSuchBucket</Code>", "NoSuchBucket", "NoSuchBucket"),
        (b"HTTP/1.1 301 Moved\r\n\r\n", "HTTP 301", "HTTP 301"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "HTTP 200", "HTTP 200"),
        (b"SSH-2.0-x\r\n", "no S3 server", "no S3 server"),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_listing_is_the_reason(answer: bytes, reason: str, text: str) -> None:
    with pytest.raises(BucketMountError, match=text) as caught:
        probe.judge(source("http://h"), answer)
    assert caught.value.context["reason"] == reason


def test_a_listing_is_what_is_wanted() -> None:
    probe.judge(source("http://h"), b"HTTP/1.1 200 OK\r\n\r\n<ListBucketResult/>")
