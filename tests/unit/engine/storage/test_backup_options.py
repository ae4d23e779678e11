from typing import Any

import pytest

from atoll.engine.storage.backup_options import check, directory, is_id
from atoll.errors import InvalidBackupConfigError
from atoll.wire.backups import CreateBackup


@pytest.mark.parametrize(
    "path",
    ["", "workspace", "/", "/etc", "/workspacex", "/workspace/../etc", "/tmp/..", "/home\0", "//"],
)
def test_other_directories_are_refused(path: str) -> None:
    with pytest.raises(InvalidBackupConfigError):
        directory(path)


@pytest.mark.parametrize(
    ("path", "clean"),
    [("/workspace//a/./b/", "/workspace/a/b"), ("//tmp/x", "/tmp/x"), ("/var/tmp", "/var/tmp")],
)
def test_a_path_is_told_in_its_short_form(path: str, clean: str) -> None:
    assert directory(path) == clean


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "rar"},
        {"name": "x" * 257},
        {"name": "a\nb"},
        {"ttl_ms": 0},
        {"ttl_ms": -1},
        {"ttl_ms": 1 << 60},
        {"excludes": ["a\nb"]},
        {"excludes": ["x" * 5000]},
        {"excludes": ["x"] * 1001},
    ],
)
def test_options_that_could_never_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidBackupConfigError):
        check(CreateBackup(dir="/tmp", **options))


def test_an_id_is_written_in_one_way_only() -> None:
    """It is part of keys of a bucket and of names of files."""
    id = "5d5c7d5e-0000-4000-8000-000000000000"
    assert is_id(id)
    for other in (
        id.upper(),
        "{" + id + "}",
        "urn:uuid:" + id,
        id.replace("-", ""),
        "../" + id,
        "",
    ):
        assert not is_id(other)
