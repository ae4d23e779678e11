"""Snapshots of sandboxes, forks, and what changed since one."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from atoll.wire.base import Request, Result, Whole


class Snapshot(Result, frozen=True, kw_only=True):
    """The files of a sandbox as they were at one moment. Size in bytes, its image not included."""

    id: str
    namespace: str
    sandbox: str
    name: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    size: int = 0
    created_at: datetime
    parent: str | None = None  # the snapshot that the sandbox came from
    expires_at: datetime | None = None
    image: str = ""


class TakeSnapshot(Request, frozen=True, kw_only=True):
    """What a snapshot is called, and when it goes."""

    name: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    ttl_ms: Whole | None = msgspec.field(default=None, name="ttl")


class ListSnapshots(Request, frozen=True, kw_only=True):
    """Which snapshots to list. `labels` are written ``key=value``, comma separated."""

    sandbox: str | None = None
    labels: str | None = None
    cursor: str | None = None
    limit: Whole = 100


class SnapshotPage(Result, frozen=True, kw_only=True):
    """One page of a listing, the oldest first; `cursor` is None on the last."""

    snapshots: list[Snapshot]
    cursor: str | None = None

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self.snapshots)

    def __len__(self) -> int:
        return len(self.snapshots)


class RestoreSnapshot(Request, frozen=True, kw_only=True):
    """Which snapshot a sandbox goes back to."""

    snapshot: str


class Fork(Request, frozen=True, kw_only=True):
    """New sandboxes with the files of this one, or of a snapshot of its namespace."""

    id: str | None = None
    count: Whole = 1
    from_snapshot: str | None = None


class Forked(Result, frozen=True, kw_only=True):
    """One of the new sandboxes, or why there is none: `error` is the envelope."""

    id: str
    error: dict[str, Any] | None = None


class ForkResult(Result, frozen=True, kw_only=True):
    """What became of each."""

    forks: list[Forked]


class DiffRequest(Request, frozen=True, kw_only=True):
    """The snapshot to compare with."""

    since: str


class Change(Result, frozen=True, kw_only=True):
    """A path that differs. `kind`: created, modified or deleted; `type`: as in a listing."""

    path: str
    kind: str
    type: str
    size: int = 0


class Patch(Result, frozen=True, kw_only=True):
    """A patch, in bytes. `truncated`: there is more than is in it or named."""

    size: int
    truncated: bool = False


class Diff(Result, frozen=True, kw_only=True):
    """What changed, in order of path. `truncated`: there is more than is told."""

    changes: list[Change]
    truncated: bool = False

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)
