"""Named volumes of namespaces: a layer of the layer store each, with a row that names it.

So the size limit is the layer's, and a volume costs nothing while nobody uses it. The layer comes
first and the row after it, and the row goes before the layer: what a crash leaves is a layer
without a row, which the reaper removes.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.storage.claims import in_use
from atoll.engine.storage.volume_table import MAX_PAGE, Stored, VolumeTable
from atoll.engine.store import record as rules
from atoll.engine.store.record import Mounted, Record
from atoll.engine.store.store import Store
from atoll.errors import FileExistsError, ValidationFailedError, VolumeNotFoundError
from atoll.settings import MB
from atoll.storage import volume_files
from atoll.storage.volume_files import Draft, Entry
from atoll.wire import ids, names
from atoll.wire.volumes import (
    CreateVolume,
    ListVolumeFiles,
    ListVolumes,
    VolumeFile,
    VolumeFileList,
    VolumeInfo,
    VolumePage,
    VolumeWritten,
)

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
        self._life = life
        self._new_name = new_name
        self._changing = asyncio.Lock()
        self._swept: set[str] = set()

    async def create(self, namespace: str, wanted: CreateVolume) -> VolumeInfo:
        """Make a volume; one that is there already and is the same is returned.

        Raises:
            ValidationFailedError: name or size is out of range.
            FileExistsError: there is one of this name with other options.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        _check(namespace, wanted)
        async with self._changing:
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
            created_at=rules.now(),
        )
        life.building.add(made.layer_id)
        try:
            await life.parts.layers.create(made.layer_id, made.size)
            life.faults.at("volume.made")
            await self.table.add(made)
            life.faults.at("volume.recorded")
        except BaseException:
            await life.parts.layers.delete(made.layer_id)
            raise
        finally:
            life.building.discard(made.layer_id)
        return made

    async def get(self, namespace: str, name: str) -> VolumeInfo:
        """Return a volume; raise `VolumeNotFoundError` when there is none."""
        return await self._told(await self._found(namespace, name))

    async def _found(self, namespace: str, name: str) -> Stored:
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
        async with self._changing:
            found = await self.table.get(namespace, name)
            if found is None:
                return
            if users := self._life.claims.users(found.layer_id):
                raise in_use(name, users)
            await self.table.delete(found.layer_id)
            self._life.faults.at("volume.forgotten")
            await self._life.parts.layers.delete(found.layer_id)

    async def mounted(self, namespace: str, wanted: Mapping[str, str]) -> dict[str, Mounted]:
        """Return what a start is to mount: path → volume; raise as `get`."""
        return {path: _mounted(await self._found(namespace, name)) for path, name in wanted.items()}

    def recover(self, owners: Iterable[Record]) -> None:
        """Find out which volumes are in use by what runs on."""
        for record in owners:
            if record.host_ref and record.in_force:
                layers = [volume.layer_id for volume in record.in_force.volumes.values()]
                self._life.claims.adopt(record.host_ref, record.id, layers)

    async def opened(self, namespace: str, name: str, path: str) -> tuple[BinaryIO, VolumeFile]:
        """Open a file of a volume; raise as `get` and `volume_files.opened`."""
        path, layer = _path(path), await self._folder(namespace, name)
        file, found = await asyncio.to_thread(volume_files.opened, layer, path)
        return file, _file(path, Entry(path, "file", found, None))

    async def files(self, namespace: str, name: str, wanted: ListVolumeFiles) -> VolumeFileList:
        """Return one page of a folder; raise as `get` and `volume_files.entries`."""
        path, layer = _path(wanted.path), await self._folder(namespace, name)
        after = os.fsdecode(names.to_bytes(wanted.cursor or ""))
        found, cursor = await asyncio.to_thread(
            volume_files.entries, layer, path, after, wanted.limit
        )
        files = [_file("/".join(filter(None, (path, each.name))), each) for each in found]
        return VolumeFileList(files=files, cursor=cursor and _text(cursor))

    @asynccontextmanager
    async def writing(self, namespace: str, name: str, path: str) -> "AsyncIterator[Writing]":
        """Write a file; without `Writing.end` nothing is changed. Raise as `get`."""
        path, layer = _path(path), await self._folder(namespace, name)
        async with self._changing:  # of drafts no earlier engine made, none is swept
            if layer.name not in self._swept:
                await asyncio.to_thread(volume_files.sweep, layer)
                self._swept.add(layer.name)
        draft = await asyncio.to_thread(Draft, layer, path)
        try:
            yield Writing(path, draft)
        finally:
            await asyncio.to_thread(draft.close)

    async def _folder(self, namespace: str, name: str) -> Path:
        found = await self._found(namespace, name)
        return await self._life.parts.layers.attach(found.layer_id)

    async def _told(self, volume: Stored) -> VolumeInfo:
        return VolumeInfo(
            name=volume.name,
            namespace=volume.namespace,
            size=volume.size,
            used=await self._life.parts.layers.usage(volume.layer_id),
            read_only=volume.read_only,
            shared=volume.shared,
            created_at=volume.created_at,
            sandboxes=self._life.claims.users(volume.layer_id),
        )


class Writing:
    """A file that is being written to a volume."""

    def __init__(self, path: str, draft: Draft) -> None:
        self._path = path
        self._draft = draft

    async def write(self, data: bytes) -> None:
        """Append *data*; raise as `Draft.write`."""
        await asyncio.to_thread(self._draft.write, data)

    async def end(self) -> VolumeWritten:
        """Put the file in its place; raise as `Draft.publish`."""
        digest = await asyncio.to_thread(self._draft.publish)
        return VolumeWritten(path=self._path, size=self._draft.size, sha256=digest)


def _check(namespace: str, wanted: CreateVolume) -> None:
    ids.check_namespace(namespace)
    if not _NAME.fullmatch(wanted.name):
        raise ValidationFailedError(
            f"{wanted.name[:80]!r} is not a name of a volume",
            context={"field": "name"},
            suggestion="use 1 to 63 letters, digits, '-', '_' or '.'",
        )
    if not MIN_SIZE <= wanted.size <= MAX_SIZE:
        raise ValidationFailedError(
            f"a volume cannot have {wanted.size} bytes",
            context={"field": "size", "smallest": MIN_SIZE, "largest": MAX_SIZE},
        )


def _same(found: Stored, wanted: CreateVolume) -> Stored:
    options = found.size, found.read_only, found.shared
    if options == (wanted.size, wanted.read_only, wanted.shared):
        return found
    raise FileExistsError(
        f"there is a volume {found.name!r} with other options",
        context={"volume": found.name, "size": found.size},
        suggestion="use it as it is, or delete it first",
    )


def _mounted(volume: Stored) -> Mounted:
    return Mounted(
        name=volume.name,
        layer_id=volume.layer_id,
        read_only=volume.read_only,
        shared=volume.shared,
    )


def _file(path: str, entry: Entry) -> VolumeFile:
    return VolumeFile(
        path=_text(path),
        type=entry.type,
        size=entry.stat.st_size if entry.type == "file" else 0,
        mode=entry.stat.st_mode & 0o7777,
        modified_at=datetime.fromtimestamp(entry.stat.st_mtime, UTC),
        target=None if entry.target is None else _text(entry.target),
    )


def _text(name: str) -> str:
    return names.to_text(os.fsencode(name))


def _path(text: str) -> str:
    return volume_files.clean(os.fsdecode(names.to_bytes(text)))
