"""Backups of directories: archives outside the sandbox, put back as a whole."""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from atoll.wire.base import Request, Result, Whole


class CreateBackup(Request, frozen=True, kw_only=True):
    """What to back up. `excludes` are lines as in a ``.gitignore`` of the directory.

    With `local_bucket` the archive stays on the engine's host, whatever bucket its settings name.
    """

    dir: str
    name: str | None = None
    ttl_ms: Whole | None = msgspec.field(default=None, name="ttl")
    gitignore: bool = False
    excludes: list[str] = msgspec.field(default_factory=list)
    compression: str = "zstd"
    local_bucket: bool = False


class DirectoryBackup(Result, frozen=True, kw_only=True):
    """A backup: a plain value to store. `size` is of the archive, `content_size` of what is in it.

    `skipped` names what could not be read, `changed` what was written meanwhile; 100 each at most.
    `bucket` is where the archive is; None: on the engine's host.
    """

    id: str
    dir: str
    namespace: str
    sandbox: str
    name: str | None = None
    compression: str = "zstd"
    size: int = 0
    content_size: int = 0
    files: int = 0
    sha256: str = ""
    created_at: datetime
    expires_at: datetime | None = None
    skipped: list[str] = msgspec.field(default_factory=list)
    changed: list[str] = msgspec.field(default_factory=list)
    bucket: str | None = None
    local_bucket: bool = False


class RestoreBackup(Request, frozen=True, kw_only=True):
    """Which backup to put back, and where; by default where it came from."""

    backup: str
    dir: str | None = None


class Restored(Result, frozen=True, kw_only=True):
    """A directory was put back. `files` counts all entries, `size` their content in bytes."""

    success: bool = True
    id: str
    dir: str
    files: int
    size: int


class ListBackups(Request, frozen=True, kw_only=True):
    """Which backups to list."""

    sandbox: str | None = None
    cursor: str | None = None
    limit: Whole = 100


class BackupPage(Result, frozen=True, kw_only=True):
    """One page of a listing, the oldest first; `cursor` is None on the last."""

    backups: list[DirectoryBackup]
    cursor: str | None = None

    def __iter__(self) -> Iterator[DirectoryBackup]:
        return iter(self.backups)

    def __len__(self) -> int:
        return len(self.backups)
