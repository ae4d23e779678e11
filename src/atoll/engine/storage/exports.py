"""Snapshots that leave as one file and come back, also to another engine.

What comes back is unpacked into a layer that no record tells of, and becomes a snapshot in one
step when it is whole. A crash leaves a layer or files without a row; the next sweep removes them.
"""

import uuid
from collections.abc import AsyncIterator
from typing import NamedTuple

from atoll.engine.parts import Image
from atoll.engine.shared import Shared
from atoll.engine.storage import portable
from atoll.engine.storage.kept import Kept
from atoll.engine.storage.portable import Manifest
from atoll.engine.storage.snapshots import Snapshots, check_names
from atoll.engine.store import record as rules
from atoll.engine.store.record import InForce
from atoll.errors import ImageNotFoundError, ValidationFailedError
from atoll.images import reference
from atoll.images.archive import Limits
from atoll.settings import MB
from atoll.wire import ids
from atoll.wire.sandbox import Limits as Sizes
from atoll.wire.sandbox import SandboxOptions
from atoll.wire.snapshots import Snapshot, TakeSnapshot

MAX_IMAGE = 500
"""Characters of the name of an image."""

_OVERHEAD = 2
"""How many bytes an archive may have for each that a layer may: holes travel as zeros."""


class Exported(NamedTuple):
    """A snapshot that leaves."""

    snapshot: Snapshot
    body: AsyncIterator[bytes]


class Exports:
    """Exports and imports of all namespaces.

    Args:
        shared: what all sandboxes of the engine work with.
        snapshots: where they are.
    """

    def __init__(self, shared: Shared, snapshots: Snapshots) -> None:
        self._shared = shared
        self._snapshots = snapshots

    async def export(self, namespace: str, id: str) -> Exported:
        """Return a snapshot of a namespace and its file, piece by piece.

        Raises:
            SnapshotNotFoundError: there is none, or its time is over.
        """
        kept = await self._snapshots.get(namespace, id)
        folder = await self._shared.lifecycle.parts.layers.snapshots.attach(id)

        async def body() -> AsyncIterator[bytes]:
            yield portable.encode(_manifest(kept))
            async for piece in portable.packed(folder / "upper"):
                yield piece

        return Exported(kept.snapshot, portable.sealed(body()))

    async def receive(self, namespace: str, body: AsyncIterator[bytes]) -> Snapshot:
        """Take a snapshot in that `export` gave, under a new id; it does not end by itself.

        Raises:
            ValidationFailedError: it is no exported snapshot, was changed, or is too large.
            ImageNotFoundError: the image it belongs to is not on this host.
            DiskQuotaExceededError: its files do not fit into the disk of its instance type.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        ids.check_namespace(namespace)
        manifest, rest = await portable.split(portable.whole(body))
        self._check(manifest)
        image = await self._image(manifest)
        settings, kind = self._shared.settings, self._instance_type(manifest)
        size = rules.limits(rules.instance(kind, settings.instance_types), settings.runtime.pids)
        described = _described(manifest, namespace, image, kind, size)
        return await self._snapshots.made(described, lambda new: self._fill(new, rest, size.disk))

    def _check(self, manifest: Manifest) -> None:
        ids.check_sandbox_id(manifest.sandbox)
        # By nothing else: a name could stand for another image, or have one pulled.
        if not reference.is_digest(manifest.digest):
            raise ValidationFailedError("the digest of the snapshot's image is none")
        if len(manifest.image) > MAX_IMAGE or not manifest.image.isprintable():
            raise ValidationFailedError("the name of the snapshot's image is none")
        check_names(TakeSnapshot(name=manifest.name, labels=manifest.labels))

    def _instance_type(self, manifest: Manifest) -> str:
        """Return the type it had or, where there is none of that name, one with as much disk."""
        types = self._shared.settings.instance_types
        if manifest.instance_type in types:
            return manifest.instance_type
        fitting = {name: t.disk_mb for name, t in types.items() if t.disk_mb * MB >= manifest.disk}
        default = self._shared.settings.lifecycle.instance_type
        return min(fitting, key=lambda name: fitting[name], default=default)

    async def _image(self, manifest: Manifest) -> Image:
        try:
            return await self._shared.lifecycle.parts.images.obtain(manifest.digest)
        except ImageNotFoundError as error:
            raise ImageNotFoundError(
                f"the snapshot belongs to an image that is not here: {manifest.image[:200]}",
                context={"image": manifest.image[:200], "digest": manifest.digest[:100]},
                suggestion="bring that very image here: pull it by its digest, or build it alike",
            ) from error

    async def _fill(self, id: str, body: AsyncIterator[bytes], disk: int) -> None:
        life = self._shared.lifecycle
        layer_id = self._shared.new_name()
        life.building.add(layer_id)
        try:
            await life.parts.layers.create(layer_id, disk)
            folder = await life.parts.layers.attach(layer_id)
            await portable.unpack(body, folder / "upper", Limits(size=_OVERHEAD * disk))
            life.faults.at("import.unpacked")
            await life.parts.layers.snapshots.take(layer_id, id)
            life.faults.at("import.kept")
        finally:
            await life.parts.layers.delete(layer_id)
            life.building.discard(layer_id)


def _manifest(kept: Kept) -> Manifest:
    told, force = kept.snapshot, kept.in_force
    return Manifest(
        image=force.image,
        digest=force.digest,
        instance_type=force.instance_type,
        disk=force.limits.disk,
        sandbox=told.sandbox,
        name=told.name,
        labels=told.labels,
        created_at=told.created_at,
    )


def _described(manifest: Manifest, namespace: str, image: Image, kind: str, sizes: Sizes) -> Kept:
    snapshot = Snapshot(
        id=str(uuid.uuid4()),
        namespace=namespace,
        sandbox=manifest.sandbox,
        name=manifest.name,
        labels=manifest.labels,
        created_at=manifest.created_at,
        image=manifest.image,
    )
    force = InForce(
        image=manifest.image,
        digest=image.digest,
        instance_type=kind,
        level="",
        runtime="",
        limits=sizes,
    )
    return Kept(snapshot=snapshot, options=SandboxOptions(image=image.digest), in_force=force)
