import pytest

from atoll.engine.storage.vaults import bucket_of
from atoll.errors import InvalidConfigError
from atoll.settings import BackupSettings

KEY = {"access_key_id": "key", "secret_access_key": "secret"}


def test_without_a_bucket_there_is_none() -> None:
    assert bucket_of(BackupSettings(**KEY)) is None


def test_an_endpoint_tells_where_the_bucket_is_and_what_is_signed() -> None:
    for endpoint, host, region, by_path in (
        (None, "s3.amazonaws.com", "us-east-1", False),
        ("https://s3.eu-west-1.amazonaws.com", "s3.eu-west-1.amazonaws.com", "eu-west-1", False),
        ("https://a.r2.cloudflarestorage.com", "a.r2.cloudflarestorage.com", "auto", True),
        ("https://storage.googleapis.com", "storage.googleapis.com", "us-east-1", True),
        ("http://127.0.0.1:9000", "127.0.0.1", "us-east-1", True),
    ):
        found = bucket_of(BackupSettings(bucket="bucket", endpoint=endpoint, **KEY))
        assert found
        source, credentials = found
        assert (source.endpoint.host, source.region, source.by_path) == (host, region, by_path)
        assert credentials.access_key_id == "key"


@pytest.mark.parametrize(
    "settings",
    [
        BackupSettings(bucket="bucket"),
        BackupSettings(bucket="bucket", access_key_id="key"),
        BackupSettings(bucket="bucket", secret_access_key="secret"),
        BackupSettings(bucket="a bucket", **KEY),
        BackupSettings(bucket="bucket", endpoint="ftp://x", **KEY),
        BackupSettings(bucket="bucket", endpoint="https://x/path", **KEY),
        BackupSettings(bucket="bucket", endpoint="https://a.blob.core.windows.net", **KEY),
        BackupSettings(bucket="bucket", access_key_id="a b", secret_access_key="secret"),
    ],
)
def test_a_bucket_that_could_never_work_is_told_at_the_start(settings: BackupSettings) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        bucket_of(settings)
    assert "secret" not in caught.value.message.replace("secret_access_key", "")
