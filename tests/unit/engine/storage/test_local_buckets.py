from pathlib import Path

import pytest

from atoll.engine.storage.local_buckets import LocalBuckets
from atoll.errors import BucketMountError, InvalidMountConfigError


def test_an_offer_holds_as_long_as_its_lease(tmp_path: Path) -> None:
    buckets = LocalBuckets({"OWN": tmp_path})
    with buckets.offered({"DATA": tmp_path}):
        assert "DATA" in buckets
        assert buckets.find("DATA") == tmp_path
    assert "DATA" not in buckets
    assert buckets.find("OWN") == tmp_path
    with pytest.raises(InvalidMountConfigError, match="OWN"):
        buckets.find("DATA")


def test_two_programs_with_one_project_agree_and_two_projects_do_not(tmp_path: Path) -> None:
    """Nobody's files go to another project's folder because it came later."""
    buckets = LocalBuckets({})
    with buckets.offered({"DATA": tmp_path}):
        with buckets.offered({"DATA": tmp_path}):
            assert buckets.find("DATA") == tmp_path
        assert "DATA" in buckets
        with (
            buckets.offered({"DATA": tmp_path / "x"}),
            pytest.raises(InvalidMountConfigError, match="two projects"),
        ):
            buckets.find("DATA")


def test_a_folder_that_is_gone_is_a_bucket_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BucketMountError) as caught:
        LocalBuckets({"DATA": tmp_path / "gone"}).find("DATA")
    assert caught.value.context["reason"] == "NoSuchBucket"
