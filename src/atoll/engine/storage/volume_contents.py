"""Files of volumes, read and changed without any sandbox.

Reading and writing a file need no lock: it is put in its place by one rename. What takes a tree
apart, and what must not fall between two contents of a volume, holds the volume's.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

import structlog

from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.storage.volume_table import Stored
from atoll.engine.storage.volumes import Volumes, changed
from atoll.host.threads import run_to_end
from atoll.storage import volume_changes, volume_files
from atoll.storage.volume_files import Draft, Entry
from atoll.wire import names
from atoll.wire.volumes import (
    ListVolumeFiles,
    MakeVolumeFolder,
    MoveVolumeFile,
    RemoveVolumeFile,
    VolumeFile,
    VolumeFileList,
    VolumeWritten,
)

log = structlog.get_logger(__name__)


class VolumeContents:
    """The files of all volumes.

    Args:
        volumes: which there are.
        life: where layers are.
    """

    def __init__(self, volumes: Volumes, life: Lifecycle) -> None:
        self._volumes = volumes
        self._layers = life.parts.layers
        self._faults = life.faults
        self._swept: set[str] = set()
        self._left: dict[str, list[Draft]] = {}

    async def opened(self, namespace: str, name: str, path: str) -> tuple[BinaryIO, VolumeFile]:
        """Open a file of a volume; raise as `Volumes.get` and `volume_files.opened`."""
        path, layer = _path(path), await self._folder(await self._volumes.found(namespace, name))
        file, found = await asyncio.to_thread(volume_files.opened, layer, path)
        return file, _file(path, Entry(path, "file", found, None))

    async def files(self, namespace: str, name: str, wanted: ListVolumeFiles) -> VolumeFileList:
        """Return one page of a folder; raise as `Volumes.get` and `volume_files.entries`."""
        path = _path(wanted.path)
        layer = await self._folder(await self._volumes.found(namespace, name))
        after = os.fsdecode(names.to_bytes(wanted.cursor or ""))
        found, cursor = await asyncio.to_thread(
            volume_files.entries, layer, path, after, wanted.limit
        )
        files = [_file("/".join(filter(None, (path, each.name))), each) for each in found]
        return VolumeFileList(files=files, cursor=cursor and _text(cursor))

    @asynccontextmanager
    async def writing(self, namespace: str, name: str, path: str) -> "AsyncIterator[Writing]":
        """Write a file; without `Writing.end` nothing is changed. Raise as `Volumes.get`."""
        path = _path(path)
        async with self._changing(namespace, name) as (volume, layer):
            draft = await asyncio.to_thread(Draft, layer, path)
        try:
            yield Writing(path, draft, self._volumes, volume)
        finally:
            if not await run_to_end(draft.close):
                self._left.setdefault(volume.layer_id, []).append(draft)

    async def make_folder(self, namespace: str, name: str, wanted: MakeVolumeFolder) -> None:
        """Make a folder; raise as `Volumes.get` and `volume_changes.make_folder`."""
        path = _path(wanted.path)
        async with self._changing(namespace, name) as (_, layer):
            make = partial(volume_changes.make_folder, parents=wanted.parents)
            await run_to_end(make, layer, path)

    async def move(self, namespace: str, name: str, wanted: MoveVolumeFile) -> None:
        """Give something another path; raise as `Volumes.get` and `volume_changes.move`."""
        path, target = _path(wanted.path), _path(wanted.target)
        async with self._changing(namespace, name) as (_, layer):
            move = partial(volume_changes.move, overwrite=wanted.overwrite)
            await run_to_end(move, layer, path, target)

    async def remove(self, namespace: str, name: str, wanted: RemoveVolumeFile) -> None:
        """Remove something; raise as `Volumes.get` and `volume_changes.remove`.

        It is gone in one step, and its space is free when this returns. A full volume gets a little
        more than its limit meanwhile: moving a folder away takes some.
        """
        path = _path(wanted.path)
        async with self._changing(namespace, name) as (volume, layer):
            await run_to_end(self._remove, volume, layer, path, wanted.recursive)

    def _remove(self, volume: Stored, layer: Path, path: str, recursive: bool) -> None:
        with self._layers.spare(volume.layer_id):
            gone = volume_changes.remove(layer, path, recursive=recursive)
            self._faults.at("contents.removed")
            if gone and not volume_changes.dismantle(gone):
                log.warning("somebody still writes to what was removed", volume=volume.name)

    @asynccontextmanager
    async def _changing(self, namespace: str, name: str) -> AsyncIterator[tuple[Stored, Path]]:
        """Hold a volume. What an earlier engine, or a store that failed, left half-done goes first."""
        async with self._volumes.lock(namespace, name):
            volume = await self._volumes.found(namespace, name)
            layer = await self._folder(volume)
            if volume.layer_id not in self._swept:
                await run_to_end(volume_changes.sweep, layer)
                self._swept.add(volume.layer_id)
            for draft in self._left.pop(volume.layer_id, []):
                if not await run_to_end(draft.close):
                    self._left.setdefault(volume.layer_id, []).append(draft)
            yield volume, layer

    async def _folder(self, volume: Stored) -> Path:
        return await self._layers.attach(volume.layer_id)


class Writing:
    """A file that is being written to a volume."""

    def __init__(self, path: str, draft: Draft, volumes: Volumes, volume: Stored) -> None:
        self._path = path
        self._draft = draft
        self._volumes = volumes
        self._volume = volume

    async def write(self, data: bytes) -> None:
        """Append *data*; raise as `Draft.write`."""
        await asyncio.to_thread(self._draft.write, data)

    async def end(self) -> VolumeWritten:
        """Put the file in its place; raise as `Draft.publish`.

        Raises:
            ResourceBusyError: the volume has other contents by now.
        """
        of = self._volume
        async with self._volumes.lock(of.namespace, of.name):
            if (await self._volumes.found(of.namespace, of.name)).layer_id != of.layer_id:
                raise changed(of.name)
            digest = await run_to_end(self._draft.publish)
        return VolumeWritten(path=self._path, size=self._draft.size, sha256=digest)


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
