"""What the disk of an engine is used for, and what of it can be collected."""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from atoll.wire.base import Request, Result, Whole


class DiskQuery(Request, frozen=True, kw_only=True):
    """How many entries to tell, the largest first."""

    limit: Whole = 100


class DiskEntry(Result, frozen=True, kw_only=True):
    """Something that takes disk. `kind`: sandbox, snapshot, backup, unpacked or volume; bytes.

    What is unpacked is a backup that was put back, kept so that the next time is quick.

    `size` counts blocks that several refer to for each of them: a fork counts in full. What is of
    kind bucket is a backup that takes its place there, and none of this host's.
    """

    kind: str
    id: str
    size: int
    limit: int | None = None
    expires_at: datetime | None = None


class DiskUsage(Result, frozen=True, kw_only=True):
    """The largest entries of a namespace, and sums over all: kind → bytes and kind → number."""

    entries: list[DiskEntry]
    sizes: dict[str, int] = msgspec.field(default_factory=dict)
    counts: dict[str, int] = msgspec.field(default_factory=dict)

    def __iter__(self) -> Iterator[DiskEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class Collect(Request, frozen=True, kw_only=True):
    """Collect what nobody needs, or with `dry_run` only tell what it is."""

    dry_run: bool = True


class Collectable(Result, frozen=True, kw_only=True):
    """Something nobody needs. `reason`: expired, orphaned or cached; `kind` also layer, archive or note.

    What is cached is made again when it is needed.
    A note is of a backup in a bucket: it goes when the bucket was asked and has nothing of it.
    """

    kind: str
    id: str
    reason: str
    size: int = 0
    namespace: str | None = None


class StoreSpace(Result, frozen=True, kw_only=True):
    """The one file that files of sandboxes, snapshots and volumes are in. Bytes.

    `size` is the most it can have, `taken` what it takes of the host's disk, `used` what is in it,
    shared blocks counted once. What was deleted is given back to the host's disk in the background.
    """

    size: int
    taken: int
    used: int


class Collected(Result, frozen=True, kw_only=True):
    """What was removed, or would be. `size` in bytes, shared blocks counted for each.

    `shrunk`: by how many bytes the store's file became smaller. `store` is None where there is none.
    """

    items: list[Collectable]
    size: int
    dry_run: bool
    shrunk: int = 0
    store: StoreSpace | None = None

    def __iter__(self) -> Iterator[Collectable]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
