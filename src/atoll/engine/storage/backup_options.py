"""What may be asked of a backup. Pure: all of it is checked before a sandbox is woken."""

import posixpath
import uuid

from atoll.engine.storage import archives
from atoll.engine.store import record as rules
from atoll.errors import InvalidBackupConfigError
from atoll.wire.backups import CreateBackup

ROOTS = ("/workspace", "/home", "/tmp", "/var/tmp", "/app")  # paths inside
"""Where directories may be backed up and put back: what is the user's, not the image's."""

MAX_NAME = 256
"""Characters of a backup's name."""
MAX_EXCLUDES = 1_000
"""Patterns of one backup, each at most 4,096 characters."""


def directory(path: str) -> str:
    """Return the directory *path* means.

    Raises:
        InvalidBackupConfigError: it is not absolute, has a ``..``, or is not below `ROOTS`.
    """
    clean = "/" + posixpath.normpath(path).lstrip("/")
    allowed = any(clean == root or clean.startswith(root + "/") for root in ROOTS)
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path or not allowed:
        raise InvalidBackupConfigError(
            f"{path[:200]!r} is not a directory that can be backed up",
            context={"field": "dir", "dir": path[:200]},
            suggestion=f"name an absolute path below {', '.join(ROOTS)}",
        )
    return clean


def is_id(text: str) -> bool:
    """Whether *text* is written as our ids are: it becomes a part of keys and names of files."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def check(wanted: CreateBackup) -> None:
    """Refuse what could never be backed up, before the sandbox is woken; raise as `directory`."""
    directory(wanted.dir)
    archives.check(wanted.compression)
    if len(wanted.name or "") > MAX_NAME or not (wanted.name or "x").isprintable():
        raise InvalidBackupConfigError(
            f"a name is at most {MAX_NAME} printable characters", context={"field": "name"}
        )
    if wanted.ttl_ms is not None and not 0 < wanted.ttl_ms <= rules.MAX_DURATION:
        raise InvalidBackupConfigError("a backup lives some time", context={"field": "ttl"})
    if len(wanted.excludes) > MAX_EXCLUDES or any(
        len(line) > 4_096 or "\n" in line or "\0" in line for line in wanted.excludes
    ):
        raise InvalidBackupConfigError(
            f"at most {MAX_EXCLUDES} patterns of one line each", context={"field": "excludes"}
        )
