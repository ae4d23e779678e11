"""What is kept of a snapshot beside its files, and how one is found: also as an image."""

import re

import msgspec

from atoll.engine.egress.stored import Egress
from atoll.engine.store import record as rules
from atoll.engine.store.record import InForce
from atoll.engine.store.shelf import Shelf
from atoll.errors import SnapshotNotFoundError
from atoll.wire.sandbox import SandboxOptions
from atoll.wire.snapshots import Snapshot

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot, and what a sandbox that begins as it needs to know of its origin."""

    snapshot: Snapshot
    options: SandboxOptions
    env: dict[str, str | None] = {}
    egress: Egress = Egress()
    in_force: InForce


def is_snapshot(image: str | None) -> bool:
    """Whether an option `image` names a snapshot: no image is called like the id of one."""
    return _ID.fullmatch(image or "") is not None


async def find(shelf: Shelf[Kept], namespace: str, id: str) -> Kept:
    """Return a snapshot of a namespace.

    Raises:
        SnapshotNotFoundError: there is none, or its time is over.
    """
    found = await shelf.get(namespace, id)
    ends = found.snapshot.expires_at if found else None
    if found is None or (ends and ends <= rules.now()):
        raise SnapshotNotFoundError(
            f"no snapshot {id[:80]!r} in namespace {namespace!r}",
            context={"namespace": namespace, "snapshot": id[:80]},
        )
    return found
