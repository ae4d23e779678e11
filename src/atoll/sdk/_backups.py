"""What callers name a backup by."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from atoll.errors import InvalidBackupConfigError
from atoll.wire.backups import DirectoryBackup

Backup = DirectoryBackup | Mapping[str, Any] | str
"""A backup as `create_backup` returned it, its `to_dict()`, or its id."""


class Named(NamedTuple):
    """Which backup is meant, and the directory that its value says; an id says none."""

    id: str
    dir: str | None


def named(backup: Backup) -> Named:
    """Return what *backup* says.

    Raises:
        InvalidBackupConfigError: it is no backup.
    """
    id: object = backup
    dir: object = None
    if isinstance(backup, DirectoryBackup):
        id, dir = backup.id, backup.dir
    elif isinstance(backup, Mapping):
        id, dir = backup.get("id"), backup.get("dir")
    if not isinstance(id, str) or not id:
        raise InvalidBackupConfigError(
            "this is no backup: give what create_backup returned, its to_dict(), or the id",
            context={"field": "backup"},
        )
    if dir is not None and not isinstance(dir, str):
        raise InvalidBackupConfigError(
            "a backup's directory is a path", context={"field": "backup", "dir": repr(dir)[:100]}
        )
    return Named(id, dir)
