import pytest

from atoll.errors import NotSupportedByRuntimeError, RuntimeNotAvailableError
from atoll.host import process
from atoll.storage.buckets import options, tools
from atoll.storage.buckets.options import Source


def source(provider: str) -> Source:
    return options.source(
        bucket="bucket", endpoint="https://h", provider=provider, prefix=None, read_only=False,
        given=(),
    )  # fmt: skip


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Programs this host does not have; it has all others."""
    missing: set[str] = set()
    found = lambda name: None if name in missing else f"/usr/bin/{name}"  # noqa: E731
    monkeypatch.setattr(process, "find", found)
    return missing


def test_s3_is_served_by_what_there_is_and_azure_by_rclone(without: set[str]) -> None:
    local = options.local("DATA", None, read_only=False)
    for provider in ("s3", "r2", "gcs", "minio"):
        assert tools.serving(source(provider)) == tools.S3FS
    assert {tools.serving(source("azure")), tools.serving(local)} == {tools.RCLONE}
    assert tools.serving(source("s3"), "rclone") == tools.RCLONE
    assert tools.serving(local, "s3fs") == tools.RCLONE
    without.add("s3fs")
    with pytest.raises(RuntimeNotAvailableError, match="lacks s3fs"):
        tools.serving(source("s3"), "s3fs")
    assert tools.serving(source("s3")) == tools.RCLONE


def test_google_is_never_served_by_rclone(without: set[str]) -> None:
    """Its front end changes a header that rclone signs: each request would be refused."""
    with pytest.raises(NotSupportedByRuntimeError, match="served by s3fs only"):
        tools.serving(source("gcs"), "rclone")
    without.add("s3fs")
    with pytest.raises(RuntimeNotAvailableError, match="lacks s3fs"):
        tools.serving(source("gcs"))


def test_what_is_missing_is_named_with_its_package(without: set[str]) -> None:
    without |= {"rclone", "bwrap"}
    with pytest.raises(RuntimeNotAvailableError, match="bwrap, rclone") as caught:
        tools.serving(source("azure"))
    assert "apt-get install rclone" in str(caught.value.suggestion)
    assert "bubblewrap" in str(caught.value.suggestion)
    without.clear()
    without |= {"rclone", "s3fs"}
    with pytest.raises(RuntimeNotAvailableError, match="lacks s3fs"):
        tools.serving(source("s3"))
