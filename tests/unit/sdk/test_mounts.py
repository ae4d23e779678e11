import pytest

from atoll.errors import InvalidMountConfigError
from atoll.sdk import _mounts
from atoll.wire.mounts import BucketCredentials

BOTH = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "as", "R2_ACCESS_KEY_ID": "r",
        "R2_SECRET_ACCESS_KEY": "rs", "CLOUDFLARE_ACCOUNT_ID": "acc"}  # fmt: skip


def test_what_is_given_goes_before_the_environment() -> None:
    own = BucketCredentials(access_key_id="k", secret_access_key="s")
    assert _mounts.credentials(own, None, None, BOTH) is own
    assert _mounts.credentials({"accessKeyId": "k", "secretAccessKey": "s"}, None, None, {}) == own
    assert _mounts.endpoint("https://h", "r2", BOTH) == "https://h"


def test_the_environment_has_keys_by_provider() -> None:
    found = _mounts.credentials(None, None, "r2", BOTH)
    assert found is not None
    assert found.access_key_id == "r"
    found = _mounts.credentials(None, "https://s3.amazonaws.com", None, BOTH)
    assert found is not None
    assert found.access_key_id == "a"
    assert _mounts.credentials(None, None, None, {"AWS_ACCESS_KEY_ID": "half"}) is None
    assert _mounts.endpoint(None, "r2", BOTH) == "https://acc.r2.cloudflarestorage.com"
    assert _mounts.endpoint(None, None, BOTH) is None


def test_half_a_key_and_what_is_none_are_refused() -> None:
    with pytest.raises(InvalidMountConfigError):
        _mounts.credentials({"access_key_id": "k"}, None, None, {})
    with pytest.raises(InvalidMountConfigError):
        _mounts.credentials("k:s", None, None, {})  # type: ignore[arg-type]


def test_a_key_is_not_shown() -> None:
    assert "hidden" not in repr(BucketCredentials(access_key_id="k", secret_access_key="hidden"))
