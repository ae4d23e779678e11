"""Case L10 and probes 4 and 28 of the specification, as far as they need no bucket.

Mounts that succeed are in tests/e2e/engine/storage/test_mounts.py, on a real S3 server.
"""

from typing import Any

import pytest

import atoll
from atoll import errors

pytestmark = pytest.mark.container

KEY = {"access_key_id": "canary-key-id", "secret_access_key": "canary-secret"}
GIVEN = {"bucket": "bucket", "endpoint": "https://203.0.113.7", "credentials": KEY}
AT = "/workspace/data"

WRONG: list[tuple[str, dict[str, Any], type[Exception]]] = [
    ("/proc/data", {}, errors.InvalidMountConfigError),
    ("/", {}, errors.InvalidMountConfigError),
    (AT, {"credentials": None}, errors.MissingCredentialsError),
    (AT, {"prefix": "a/../../b"}, errors.InvalidMountConfigError),
    (AT, {"provider": "unknown"}, errors.InvalidMountConfigError),
    (AT, {"s3fs_options": ["logfile=/tmp/x"]}, errors.InvalidMountConfigError),
    (AT, {"s3fs_options": ["retries=1,passwd_file=/x"]}, errors.InvalidMountConfigError),
    (AT, {"binding": "DATA"}, errors.InvalidMountConfigError),
]
WRONG_HERE: list[tuple[str, dict[str, Any], type[Exception]]] = [
    ("/workspace/full", {}, errors.InvalidMountConfigError),
    ("/workspace/full/file", {}, errors.InvalidMountConfigError),
    ("/workspace/link", {}, errors.SecurityError),
    ("/workspace/link/data", {}, errors.SecurityError),
    (AT, {"endpoint": "http://127.0.0.1:9"}, errors.InvalidMountConfigError),
    (AT, {"endpoint": "http://localhost:9"}, errors.InvalidMountConfigError),
    (AT, {"endpoint": "http://169.254.169.254"}, errors.InvalidMountConfigError),
    (AT, {"endpoint": "http://10.0.0.1"}, errors.InvalidMountConfigError),
    (AT, {"endpoint": "http://0x7f000001"}, errors.InvalidMountConfigError),
]
"""Of which it takes a sandbox, and its network, to know."""

BEYOND = [
    pytest.mark.beyond_gvisor("buckets"),
    pytest.mark.beyond_bwrap("buckets"),
    pytest.mark.beyond_pods("bucket mounts"),
]


@pytest.mark.parametrize(
    ("path", "fields", "error"),
    [*WRONG, *(pytest.param(*case, marks=BEYOND) for case in WRONG_HERE)],
)
async def test_what_cannot_be_mounted_is_refused_and_changes_nothing(
    sandbox: atoll.Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    fields: dict[str, Any],
    error: type[Exception],
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    look = "cd /; ls -A; cd /workspace; ls -A; cat /proc/mounts"
    make = "mkdir full; echo > full/file; ln -s / link; "
    before = (await sandbox.exec(make + look, check=True)).stdout
    with pytest.raises(error) as caught:
        await sandbox.mount_bucket(path=path, **(GIVEN | fields))
    assert "canary" not in str(caught.value)
    after = (await sandbox.exec(look, check=True)).stdout
    assert after == before
    assert await sandbox.list_mounts() == []
    with pytest.raises((errors.MountNotFoundError, errors.InvalidMountConfigError)):
        await sandbox.unmount_bucket(path)
