import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from atoll.errors import InvalidMountConfigError, NotSupportedByRuntimeError
from atoll.storage.buckets import options, rclone
from atoll.storage.buckets.options import Credentials, Source

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECRET = base64.b64encode(b"very secret").decode()
KEY = Credentials(access_key_id="acct", secret_access_key=SECRET)


def source(**fields: Any) -> Source:
    given: dict[str, Any] = {
        "bucket": "bucket", "endpoint": "https://s3.example.com", "provider": "s3", "prefix": None,
        "read_only": False, "given": (),
    }  # fmt: skip
    return options.source(**{**given, **fields})


def test_no_secret_is_an_argument() -> None:
    for provider, endpoint in (("s3", "https://h"), ("azure", "http://127.0.0.1:1")):
        wanted = source(provider=provider, endpoint=endpoint)
        assert not any("acct" in part or SECRET in part for part in rclone.argv(wanted, 1))
    assert f"secret_access_key = {SECRET}\n" in rclone.config(source(), KEY, NOW)


def test_the_account_of_azure_is_not_given_to_the_client() -> None:
    wanted = source(provider="azure", endpoint="http://127.0.0.1:1")
    text = rclone.config(wanted, KEY, NOW)
    assert "sas_url = http://127.0.0.1:1/acct/bucket?sv=" in text
    assert SECRET not in text


@pytest.mark.parametrize("secret", ["`quoted`", "%(access_key_id)s"])
def test_a_key_that_its_file_would_change_is_refused(secret: str) -> None:
    with pytest.raises(InvalidMountConfigError, match="key"):
        rclone.config(source(), Credentials(access_key_id="a", secret_access_key=secret), NOW)


def test_without_a_key_there_is_no_configuration() -> None:
    with pytest.raises(InvalidMountConfigError):
        rclone.config(source(), None, NOW)


def test_a_folder_needs_none_and_its_links_are_no_files() -> None:
    local = options.local("DATA", "a/b", read_only=True)
    text = rclone.config(local, None, NOW)
    assert "skip_links = true\n" in text
    argv = rclone.argv(local, 1)
    assert "bucket:/bucket/a/b" in argv
    assert "--read-only" in argv
    assert not any("DATA" in part for part in argv)


@pytest.mark.parametrize(
    ("endpoint", "provider", "told"),
    [
        ("https://s3.eu-west-1.amazonaws.com", "s3", ("AWS", "eu-west-1", "false")),
        ("https://acc.r2.cloudflarestorage.com", "r2", ("Cloudflare", "auto", "true")),
        ("http://minio:9000", "minio", ("Minio", "us-east-1", "true")),
        ("http://other:9000", "s3", ("Other", "us-east-1", "true")),
    ],
)
def test_servers_of_s3_are_told_apart(
    endpoint: str, provider: str, told: tuple[str, str, str]
) -> None:
    text = rclone.config(source(endpoint=endpoint, provider=provider), KEY, NOW)
    fields = dict(line.split(" = ", 1) for line in text.splitlines()[1:])
    assert (fields["provider"], fields["region"], fields["force_path_style"]) == told
    assert fields["endpoint"] == endpoint


def test_options_of_s3fs_are_translated_or_refused() -> None:
    wanted = source(given=["stat_cache_expire=1", "umask=0000", "sigv4", "multipart_size=8"])
    argv = rclone.argv(wanted, 7)
    assert {"--dir-cache-time=1s", "--umask=0000", "--s3-chunk-size=8Mi", "--uid=7"} <= set(argv)
    assert len(argv) == len({part.partition("=")[0] for part in argv})
    with pytest.raises(NotSupportedByRuntimeError, match="use_sse"):
        rclone.argv(source(given=["use_sse=1"]), 7)
