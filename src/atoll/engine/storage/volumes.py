"""Named volumes of namespaces: a layer of the layer store each, with a row that names it.

So the size limit is the layer's, and a volume costs nothing while nobody uses it. The layer comes
first and the row after it, and the row goes before the layer: what a crash leaves is a layer
without a row, which the reaper removes.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from weakref import WeakValueDictionary

import msgspec
import structlog

from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.storage import copies, packages
from atoll.engine.storage.claims import in_use
from atoll.engine.storage.volume_table import MAX_PAGE, Stored, VolumeTable
from atoll.engine.store import record as rules
from atoll.engine.store.record import Mounted, Record
from atoll.engine.store.store import Store
from atoll.errors import (
    FileExistsError,
    ResourceBusyError,
    SandboxError,
    ValidationFailedError,
    VolumeNotFoundError,
)
from atoll.settings import MB
from atoll.wire import ids
from atoll.wire.sandbox import SandboxOptions
from atoll.wire.volumes import PACKAGE_CACHE, CreateVolume, ListVolumes, VolumeInfo, VolumePage

log = structlog.get_logger(__name__)

MIN_SIZE = 16 * MB
"""Bytes: an empty file system of its own takes a few of them."""
MAX_SIZE = 1 << 50

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")


class Volumes:
    """The volumes of all namespaces.

    Args:
        store: an open store.
        life: where layers are, and which starts use them.
        new_name: returns a name that no layer has.
    """

    def __init__(self, store: Store, life: Lifecycle, new_name: Callable[[], str]) -> None:
        self.table = VolumeTable(store)
        self._store = store
        self._life = life
        self._new_name = new_name
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def create(self, namespace: str, wanted: CreateVolume) -> VolumeInfo:
        """Make a volume; one that is there already and is the same is returned.

        Raises:
            ValidationFailedError: name or size is out of range.
            FileExistsError: there is one of this name with other options.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        _check(namespace, wanted)
        async with self.lock(namespace, wanted.name):
            if found := await self.table.get(namespace, wanted.name):
                return await self._told(_same(found, wanted))
            return await self._told(await self._make(namespace, wanted))

    async def _make(self, namespace: str, wanted: CreateVolume) -> Stored:
        life = self._life
        made = Stored(
            name=wanted.name,
            namespace=namespace,
            layer_id=f"vol-{self._new_name()}",
            size=wanted.size,
            read_only=wanted.read_only,
            shared=wanted.shared,
            private=wanted.private,
            created_at=rules.now(),
        )
        life.building.add(made.layer_id)
        try:
            await life.parts.layers.create(made.layer_id, made.size)
            life.faults.at("volume.made")
            await self.table.add(made)
            life.faults.at("volume.recorded")
        finally:  # a caller who is gone takes no row back: only the reaper knows whether there is one
            life.building.discard(made.layer_id)
        return made

    async def get(self, namespace: str, name: str) -> VolumeInfo:
        """Return a volume; raise `VolumeNotFoundError` when there is none."""
        return await self._told(await self.found(namespace, name))

    async def found(self, namespace: str, name: str) -> Stored:
        """Return what is stored of a volume; raise as `get`."""
        if found := await self.table.get(namespace, name):
            return found
        raise VolumeNotFoundError(
            f"no volume {name[:80]!r} in namespace {namespace!r}",
            context={"namespace": namespace, "volume": name[:80]},
            suggestion="make it with env.volumes.create",
        )

    async def list(self, namespace: str, wanted: ListVolumes) -> VolumePage:
        """Return one page of a namespace's volumes in order of name."""
        found, cursor = await self.table.page(namespace, wanted.cursor or "", wanted.limit)
        return VolumePage(volumes=[await self._told(each) for each in found], cursor=cursor)

    async def all(self, namespace: str) -> AsyncIterator[VolumeInfo]:
        """Yield every volume of a namespace."""
        cursor: str | None = ""
        while cursor is not None:
            found, cursor = await self.table.page(namespace, cursor, MAX_PAGE)
            for each in found:
                yield await self._told(each)

    async def delete(self, namespace: str, name: str) -> None:
        """Delete a volume with its files. Idempotent.

        Raises:
            VolumeInUseError: a sandbox has it mounted.
        """
        async with self.lock(namespace, name):
            found = await self.table.get(namespace, name)
            if found is None:
                return
            if users := self._life.claims.users(found.layer_id):
                raise in_use(name, users)
            await self.table.delete(found.layer_id)
            self._life.faults.at("volume.forgotten")
            await self._life.parts.layers.delete(found.layer_id)

    async def resize(self, namespace: str, name: str, size: int) -> VolumeInfo:
        """Give a volume another limit, also while sandboxes use it; raise as `get`.

        The limit is set first and the row after it; what a crash leaves between is undone by
        `recover`.

        Raises:
            DiskQuotaExceededError: more than that is in it; nothing is changed.
            ResourceBusyError: it is in use, and the layer store is resized at rest only (ext4).
            ValidationFailedError: the size is out of range.
        """
        _check_size(size)
        async with self.lock(namespace, name):
            found = await self.found(namespace, name)
            layers, faults = self._life.parts.layers, self._life.faults
            resized = msgspec.structs.replace(found, size=size)
            await layers.resize(found.layer_id, size)
            faults.at("resize.limited")
            await self.table.replace(found, resized)
            faults.at("resize.recorded")
            return await self._told(resized)

    async def publish(self, namespace: str, name: str, sandbox: str) -> VolumeInfo:
        """Make what a sandbox has in its copy of a private volume the content of the volume.

        The new content is complete before the row names it, in one step. Others have it from their
        next start on.

        Raises:
            VolumeNotFoundError: there is no such volume.
            SandboxNotFoundError: there is no such sandbox.
            ValidationFailedError: it does not run with a copy of this volume.
            ResourceBusyError: the volume is not any more what the copy was made of.
        """
        record = await self._store.get(namespace, sandbox)
        copied, copy_id = copies.of_sandbox(record, sandbox, name)
        async with self.lock(namespace, name):
            found = await self.found(namespace, name)
            if found.layer_id != copied.layer_id:
                raise changed(name)
            life = self._life
            new = msgspec.structs.replace(found, layer_id=f"vol-{self._new_name()}")
            life.building.add(new.layer_id)
            try:
                await life.parts.layers.duplicate(copy_id, new.layer_id, new.size)
                life.faults.at("publish.copied")
                await self.table.replace(found, new)
                life.faults.at("publish.recorded")
            finally:
                life.building.discard(new.layer_id)
            if not life.claims.users(found.layer_id):  # else a start may be copying it just now
                await life.parts.layers.delete(found.layer_id)
            return await self._told(new)

    async def mounted(self, namespace: str, wanted: SandboxOptions) -> dict[str, Mounted]:
        """Return what a start is to mount: path → volume.

        Raises:
            VolumeNotFoundError: there is no such volume.
            ValidationFailedError: one is no package cache.
        """
        rules.check_volumes(wanted)
        volumes = wanted.volumes or {}
        found = {
            path: _mounted(await self.found(namespace, name)) for path, name in volumes.items()
        }
        if wanted.package_cache:
            found[PACKAGE_CACHE] = await self._package_cache(namespace, wanted.package_cache)
        return found

    async def _package_cache(self, namespace: str, name: str) -> Mounted:
        volume = await self.found(namespace, name)
        packages.check(volume)
        return _mounted(volume)

    async def recover(self, owners: Iterable[Record]) -> None:
        """Find out which volumes are in use by what runs on; undo half a change of a limit."""
        for record in owners:
            if record.host_ref and record.in_force:
                layers = [volume.layer_id for volume in record.in_force.volumes.values()]
                self._life.claims.adopt(record.host_ref, record.id, layers)
        for volume in await self.table.all():
            try:
                await self._life.parts.layers.settle(volume.layer_id, volume.size)
            except SandboxError as error:
                log.warning("a volume's limit is not set", volume=volume.name, reason=str(error))

    def lock(self, namespace: str, name: str) -> asyncio.Lock:
        """Return what whoever changes a volume holds, for as long as somebody does."""
        return self._locks.setdefault((namespace, name), asyncio.Lock())

    async def _told(self, volume: Stored) -> VolumeInfo:
        return VolumeInfo(
            name=volume.name,
            namespace=volume.namespace,
            size=volume.size,
            used=await self._life.parts.layers.usage(volume.layer_id),
            read_only=volume.read_only,
            shared=volume.shared,
            private=volume.private,
            created_at=volume.created_at,
            sandboxes=self._life.claims.users(volume.layer_id),
        )


def _check(namespace: str, wanted: CreateVolume) -> None:
    ids.check_namespace(namespace)
    if not _NAME.fullmatch(wanted.name):
        raise ValidationFailedError(
            f"{wanted.name[:80]!r} is not a name of a volume",
            context={"field": "name"},
            suggestion="use 1 to 63 letters, digits, '-', '_' or '.'",
        )
    if wanted.read_only + wanted.shared + wanted.private > 1:
        raise ValidationFailedError(
            "a volume is one of read_only, shared and private", context={"field": "shared"}
        )
    _check_size(wanted.size)


def _check_size(size: int) -> None:
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise ValidationFailedError(
            f"a volume cannot have {size} bytes",
            context={"field": "size", "smallest": MIN_SIZE, "largest": MAX_SIZE},
        )


def _same(found: Stored, wanted: CreateVolume) -> Stored:
    options = found.size, found.read_only, found.shared, found.private
    if options == (wanted.size, wanted.read_only, wanted.shared, wanted.private):
        return found
    raise FileExistsError(
        f"there is a volume {found.name!r} with other options",
        context={"volume": found.name, "size": found.size},
        suggestion="use it as it is, or delete it first",
    )


def changed(name: str) -> ResourceBusyError:
    """Return the error for a volume that has other contents than the caller knows."""
    return ResourceBusyError(
        f"volume {name!r} was changed as a whole meanwhile",
        context={"volume": name},
        suggestion="start the sandbox again and repeat what it did",
    )


def _mounted(volume: Stored) -> Mounted:
    return Mounted(
        name=volume.name,
        layer_id=volume.layer_id,
        read_only=volume.read_only,
        shared=volume.shared,
        private=volume.private,
        size=volume.size,
    )
