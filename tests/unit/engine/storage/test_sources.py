import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll.engine.storage.sources import resolved
from atoll.errors import InvalidMountConfigError, MissingCredentialsError
from atoll.settings import BucketSettings, StorageSettings
from atoll.storage.buckets import probe, rclone, s3fs
from atoll.storage.buckets.options import Credentials
from atoll.wire.mounts import BucketCredentials, MountBucket

BOUND = BucketSettings(
    bucket="bucket-of-all", endpoint="http://minio:9000", access_key_id="id", secret_access_key="s"
)
SETTINGS = StorageSettings(buckets={"BOUND": BOUND}, local_buckets={"DATA": Path("/srv/data")})
KEY = BucketCredentials(access_key_id="account", secret_access_key=base64.b64encode(b"k").decode())


def asked(**fields: Any) -> MountBucket:
    return MountBucket(path="/data", **fields)


def test_a_binding_is_the_bucket_of_the_settings_or_a_local_folder() -> None:
    """One name in the code of a Worker, in development and in production."""
    source, key = resolved(asked(binding="BOUND"), SETTINGS, SETTINGS.local_buckets)
    assert (source.bucket, str(source.endpoint)) == ("bucket-of-all", "http://minio:9000")
    assert key
    assert key.access_key_id == "id"
    for wanted in (
        asked(binding="DATA"),
        asked(binding="DATA", local_bucket=True),
        asked(bucket="DATA", local_bucket=True),
    ):
        source, key = resolved(wanted, SETTINGS, SETTINGS.local_buckets)
        assert (source.provider, source.bucket, str(source.endpoint)) == (
            "local",
            "DATA",
            "file://",
        )
        assert key is None


@pytest.mark.parametrize(
    "fields",
    [
        {"bucket": "DATA", "binding": "DATA"},
        {"bucket": "DATA", "endpoint": "https://s3.example.com"},
        {"bucket": "DATA", "provider": "s3"},
        {"bucket": "DATA", "credentials": KEY},
        {"bucket": "DATA", "s3fs_options": ["retries=1"]},
        {"bucket": "DATA", "prefix": "../x"},
        {"bucket": "DATA", "prefix": ".atoll-multipart/x"},
    ],
)
def test_a_local_bucket_has_nothing_of_a_remote_one(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidMountConfigError):
        resolved(asked(local_bucket=True, **fields), SETTINGS, SETTINGS.local_buckets)


def test_a_folder_is_never_named_by_a_caller() -> None:
    """A binding that is none is looked for by name only, and refused when the mount is made."""
    source, _ = resolved(asked(bucket="/etc", local_bucket=True), SETTINGS, {})
    assert source.bucket == "/etc"
    with pytest.raises(InvalidMountConfigError):
        resolved(asked(binding="/etc"), SETTINGS, {})
    with pytest.raises(InvalidMountConfigError):
        resolved(asked(bucket="bucket", provider="local"), SETTINGS, {})


def test_azure_has_its_endpoint_from_the_account() -> None:
    source, key = resolved(asked(bucket="box", provider="azure", credentials=KEY), SETTINGS, {})
    assert str(source.endpoint) == "https://account.blob.core.windows.net"
    assert key
    told = asked(bucket="box", endpoint=str(source.endpoint), credentials=KEY)
    assert resolved(told, SETTINGS, {})[0].provider == "azure"


@pytest.mark.parametrize(
    "fields",
    [
        {"bucket": "Box"},
        {"bucket": "b.x"},
        {"endpoint": "https://other.blob.core.windows.net"},
        {"endpoint": "https://blob.example.com"},
        {"credentials": BucketCredentials(access_key_id="a/b", secret_access_key="aaaa")},
        {"credentials": BucketCredentials(access_key_id="account", secret_access_key="no base64")},
    ],
)
def test_what_is_no_container_of_the_account_is_refused(fields: dict[str, Any]) -> None:
    given = {"bucket": "box", "provider": "azure", "credentials": KEY, **fields}
    with pytest.raises(InvalidMountConfigError):
        resolved(asked(**given), SETTINGS, {})


def test_without_a_key_nothing_is_mounted() -> None:
    for provider in ("s3", "azure"):
        wanted = asked(bucket="bucket", provider=provider, endpoint="https://h")
        with pytest.raises(MissingCredentialsError):
            resolved(wanted, SETTINGS, {})


@pytest.mark.parametrize(
    ("inner", "whole"), [(None, "a"), ("", "a"), ("/", "a"), ("b", "a/b"), ("/b/c/", "a/b/c")]
)
def test_a_binding_of_a_part_of_a_bucket_gives_no_more_than_that(
    inner: str | None, whole: str
) -> None:
    """Probe 17: also where another part's name begins with this one's, and where none is asked for."""
    part = msgspec.structs.replace(BOUND, prefix="a")
    settings = StorageSettings(buckets={"PART": part})
    source, _ = resolved(asked(binding="PART", prefix=inner), settings, {})
    assert source.prefix == whole
    assert s3fs.argv(source, 0, 0)[2] == f"bucket-of-all:/{whole}"
    assert f"bucket:bucket-of-all/{whole}" in rclone.argv(source, 0)
    now = datetime.now(UTC)
    key = Credentials(access_key_id="id", secret_access_key="s")
    assert f"&prefix={whole.replace('/', '%2F')}%2F ".encode() in probe.signed(source, key, now)


@pytest.mark.parametrize("inner", ["..", "../ab", "b/../../ab", "./x", "b//c", "%2e%2e/\0"])
def test_nothing_leads_out_of_a_part(inner: str) -> None:
    part = msgspec.structs.replace(BOUND, prefix="a")
    with pytest.raises(InvalidMountConfigError):
        resolved(asked(binding="PART", prefix=inner), StorageSettings(buckets={"PART": part}), {})
