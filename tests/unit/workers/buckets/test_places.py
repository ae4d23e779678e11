from pathlib import Path

import pytest

from atoll.errors import InvalidConfigError
from atoll.workers.buckets import places
from atoll.workers.wrangler import Bucket


def test_a_bucket_has_a_folder_of_its_own_in_the_project() -> None:
    found = places.folders([Bucket("DATA", "data"), Bucket("LOGS", "logs")], Path("/p"))
    assert found == {
        "DATA": Path("/p/.atoll/buckets/data/objects"),
        "LOGS": Path("/p/.atoll/buckets/logs/objects"),
    }


@pytest.mark.parametrize("name", ["..", "../x", "/etc", "a/b"])
def test_a_name_leads_nowhere_else(name: str) -> None:
    with pytest.raises(InvalidConfigError):
        places.folders([Bucket("DATA", name)], Path("/p"))
