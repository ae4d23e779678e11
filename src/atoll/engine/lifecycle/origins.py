"""Which files and which image a start begins with, where the option `image` names a snapshot."""

from typing import NamedTuple

import msgspec

from atoll.engine.storage import kept
from atoll.engine.storage.kept import Kept
from atoll.engine.store.record import Record
from atoll.engine.store.shelf import Shelf
from atoll.engine.store.store import Store
from atoll.wire.sandbox import SandboxOptions


class Origin(NamedTuple):
    """Options with an image in place of a snapshot; its id for a sandbox without files yet."""

    options: SandboxOptions
    snapshot: str | None = None
    image: str = ""  # what the image is called, when that is known from elsewhere


async def resolved(
    store: Store, namespace: str, wanted: SandboxOptions, record: Record | None
) -> Origin:
    """Return what a start of *record* uses; one that has files keeps the image they belong on.

    Raises:
        SnapshotNotFoundError: a sandbox without files is to begin as a snapshot that is not there.
    """
    if not kept.is_snapshot(wanted.image):
        return Origin(wanted)
    if record and record.in_force:
        force = record.in_force
        return Origin(_with_image(wanted, force.digest), image=force.image)
    found = await kept.find(Shelf(store, "snapshots", Kept), namespace, wanted.image or "")
    options = _with_image(wanted, found.in_force.digest)
    return Origin(options, found.snapshot.id, found.in_force.image)


def _with_image(options: SandboxOptions, image: str) -> SandboxOptions:
    return msgspec.structs.replace(options, image=image)
