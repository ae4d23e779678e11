from datetime import UTC, datetime
from typing import Any

import pytest

from atoll.errors import InvalidBackupConfigError
from atoll.sdk._backups import named
from atoll.wire.backups import DirectoryBackup


def test_a_value_says_its_directory_and_an_id_none() -> None:
    made = datetime(2026, 1, 1, tzinfo=UTC)
    value = DirectoryBackup(id="b1", dir="/tmp/a", namespace="n", sandbox="s", created_at=made)
    assert named(value) == named(value.to_dict()) == ("b1", "/tmp/a")
    assert named("b1") == named({"id": "b1"}) == ("b1", None)


@pytest.mark.parametrize("backup", [None, 5, "", {}, {"id": 5}, {"id": "b1", "dir": 5}])
def test_what_is_no_backup_is_refused(backup: Any) -> None:
    with pytest.raises(InvalidBackupConfigError):
        named(backup)
