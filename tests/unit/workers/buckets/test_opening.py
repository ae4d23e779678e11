from pathlib import Path

import pytest

from atoll.errors import InvalidConfigError
from atoll.workers.buckets.opening import opened
from atoll.workers.wrangler import Bucket as Entry

KEY = {"R2_ACCESS_KEY_ID": "a", "R2_SECRET_ACCESS_KEY": "b"}


def test_production_needs_a_key_and_an_endpoint(tmp_path: Path) -> None:
    for values in (
        {},
        KEY,
        {"CLOUDFLARE_ACCOUNT_ID": "x"},
        {"R2_ENDPOINT": "https://h", "R2_ACCESS_KEY_ID": "a"},
    ):
        with pytest.raises(InvalidConfigError):
            opened([Entry("B", "bucket")], tmp_path, values, local=False)
    for values in (
        KEY | {"CLOUDFLARE_ACCOUNT_ID": "x"},
        {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": "http://h:1"},
    ):
        found = opened([Entry("B", "bucket")], tmp_path, values, local=False)
        assert repr(found["B"]) == "<Bucket bucket>"


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc", "..", "."])
def test_a_folder_stays_in_the_project(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidConfigError):
        opened([Entry("B", name)], tmp_path, {}, local=True)
