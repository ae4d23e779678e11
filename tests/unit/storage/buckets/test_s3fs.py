import pytest

from atoll.errors import InvalidMountConfigError
from atoll.storage.buckets import options, s3fs
from atoll.storage.buckets.options import Credentials


def test_no_secret_is_an_argument() -> None:
    source = options.source(
        bucket="bucket", endpoint="https://h", provider=None, prefix="a/b", read_only=True, given=()
    )
    argv = s3fs.argv(source, 7, 100)
    assert argv[:4] == ["s3fs", "-f", "bucket:/a/b", "/mnt"]
    told = argv[-1].split(",")
    assert {"passwd_file=/secret", "ensure_diskfree=100", "uid=7", "ro"} <= set(told)
    key = Credentials(access_key_id="id", secret_access_key="s3cret")
    assert s3fs.secret(key) == "id:s3cret\n"
    with pytest.raises(InvalidMountConfigError):
        s3fs.secret(None)
