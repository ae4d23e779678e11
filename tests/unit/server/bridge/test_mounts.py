from typing import Any

import pytest

from atoll.errors import ValidationFailedError
from atoll.server.bridge.mounts import checked, mount_path

REMOTE = {"bucket": "b", "mountPath": "/workspace/m", "options": {"endpoint": "https://s3"}}


def with_options(**options: Any) -> dict[str, Any]:
    return REMOTE | {"options": {"endpoint": "https://s3", **options}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "mountPath must be a non-empty string"),
        (REMOTE | {"bucket": ""}, "bucket must be a non-empty string"),
        (REMOTE | {"bucket": 7}, "bucket must be a non-empty string"),
        (REMOTE | {"binding": ""}, "binding must be a non-empty string"),
        (REMOTE | {"mountPath": 7}, "mountPath must be a non-empty string"),
        (REMOTE | {"mountPath": "m"}, "mountPath must be an absolute path (start with /)"),
        (REMOTE | {"mountPath": "/a\0b"}, "mountPath must not have a NUL character"),
        (REMOTE | {"options": None}, "options must be an object"),
        (REMOTE | {"options": []}, "options must be an object"),
        (with_options(endpoint=1), "options.endpoint must be a string when provided"),
        (with_options(provider=1), "options.provider must be a string when provided"),
        (with_options(readOnly="yes"), "options.readOnly must be a boolean when provided"),
        (with_options(prefix=1), "options.prefix must be a string when provided"),
        (
            with_options(credentialProxy=1),
            "options.credentialProxy must be a boolean when provided",
        ),
        (
            with_options(s3fsOptions=["a", 1]),
            "options.s3fsOptions must be an array of strings when provided",
        ),
        (
            with_options(credentials={"accessKeyId": "a"}),
            "options.credentials must include string accessKeyId and secretAccessKey",
        ),
        (
            with_options(credentials=None),
            "options.credentials must include string accessKeyId and secretAccessKey",
        ),
        (
            REMOTE | {"binding": "R2"},
            "Provide either binding or options.endpoint, not both",
        ),
        (
            {"mountPath": "/m", "options": {"endpoint": "https://s3"}},
            "bucket must be a non-empty string for remote mounts",
        ),
        (
            {"bucket": "b", "mountPath": "/m", "options": {}},
            "binding must be a non-empty string for R2 binding mounts",
        ),
    ],
)
def test_every_field_is_checked_and_named(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationFailedError) as caught:
        checked(body)
    assert caught.value.message == message


def test_a_right_request_is_taken() -> None:
    credentials = {"accessKeyId": "a", "secretAccessKey": "b"}
    found = checked(with_options(credentials=credentials, readOnly=True, prefix="/p/"))
    assert (found.bucket, found.path, found.endpoint) == ("b", "/workspace/m", "https://s3")
    assert checked({"binding": "R2", "mountPath": "/m", "options": {}}).endpoint is None


@pytest.mark.parametrize("path", ["/", "//", "/..", "/a/..", "/./", "///x/../.."])
def test_the_root_is_no_mount(path: str) -> None:
    with pytest.raises(ValidationFailedError, match="filesystem root"):
        mount_path({"mountPath": path})
