"""Backups that were put back, kept unpacked, so that the next time shares their files' blocks.

A tree is unpacked by the engine from the verified archive, never taken from a sandbox, and is named
by its backup; the archive's checksum is in it. It is a cache: whatever is wrong with one, it goes,
and the archive is unpacked inside as without it. To that end all that is not quite as the agent
would unpack it is refused here.
"""

import asyncio
import errno
import os
import tarfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import structlog

from atoll.engine.lifecycle.faults import Faults
from atoll.engine.link.link import SILENCE, Link
from atoll.engine.parts import Layers
from atoll.engine.storage import portable
from atoll.engine.storage.archives import Checked
from atoll.errors import (
    BackupRestoreFailedError,
    FilesystemError,
    InvalidImageError,
    SandboxError,
    ValidationFailedError,
)
from atoll.host.threads import run_to_end
from atoll.images.archive import Bounded, Limits, Tree, fill, refuse
from atoll.settings import MB, Settings
from atoll.storage.btrfs_trees import Account, BtrfsTrees
from atoll.storage.vault import refuse_full
from atoll.wire import attributes
from atoll.wire.backups import DirectoryBackup
from atoll.wire.frames import Kind

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

log = structlog.get_logger(__name__)

AT_LEAST = 1_000_000
"""Bytes of content from which a backup is kept unpacked. Processor time of unpacking and of sharing, both
without syncing: one file of 1 MB 4.7 and 0.2 ms, so that below there is little to save; 500 files of 1 kB
151 and 31 ms, of 100 kB 336 and 30 ms; 100 files of 1 MB 385 and 6 ms."""

IDS = 65_536
"""Ids inside a sandbox."""

LEVEL = "container"
"""Whose sandboxes see what is made in their layer from outside."""

_HEADERS = 4
"""Times its disk that an archive's size may be above its contents'."""

_ZEROS = bytes(1 << 18)


class NotSharedError(Exception):
    """The archive has to be unpacked inside."""


class _Stage(msgspec.Struct):
    """What the agent tells of the folder that it made."""

    stage: str


class Unpacked:
    """The trees of all namespaces.

    Args:
        layers: where trees are, and what they are shared with.
        settings: how many bytes all of them together may have, and what stays free.
        faults: where a test has the engine die.
    """

    def __init__(self, layers: Layers, settings: Settings, faults: Faults) -> None:
        self._layers = layers
        self._limit = settings.storage.unpacked_mb * MB
        self._disk, self._reserve = settings.storage.state_dir, settings.storage.reserve_mb * MB
        self._faults = faults
        self._order: list[str] = []  # of use, the latest last
        self._using = Counter[str]()
        self._making: dict[str, asyncio.Lock] = {}
        self._unfit: set[str] = set()

    @property
    def _trees(self) -> BtrfsTrees:
        if self._layers.trees is None:
            raise FilesystemError("the layers here share no blocks")
        return self._layers.trees

    def suits(self, box: "Sandbox", backup: DirectoryBackup) -> bool:
        """Tell whether a backup may be shared with a sandbox that is awake."""
        force = box.entry.existing.in_force
        return (
            self._layers.trees is not None
            and AT_LEAST <= backup.content_size <= self._limit
            and backup.id not in self._unfit
            and force is not None
            and force.level == LEVEL
        )

    @asynccontextmanager
    async def _alone(self, id: str) -> AsyncIterator[None]:
        """Be the only one who looks for a tree or makes it; it stays meanwhile."""
        lock = self._making.setdefault(id, asyncio.Lock())
        try:
            with self.used(id):
                async with lock:
                    yield
        finally:
            if id not in self._using:
                self._making.pop(id, None)

    @contextmanager
    def used(self, id: str) -> Iterator[None]:
        """Keep a tree from being removed for room meanwhile."""
        self._using[id] += 1
        try:
            yield
        finally:
            self._using[id] -= 1
            if not self._using[id]:
                del self._using[id]

    async def obtain(
        self, backup: DirectoryBackup, archive: AbstractAsyncContextManager[Checked]
    ) -> Account | None:
        """Return what is kept of a backup, unpacked now unless it was before; None: nothing.

        Raises:
            BackupRestoreFailedError: the archive is damaged, or its bucket does not answer.
        """
        async with self._alone(backup.id):
            if found := await self._find(backup):
                return found
            async with archive as source:
                return await self._keep(backup, _verified(backup, source))

    async def _find(self, backup: DirectoryBackup) -> Account | None:
        account = await run_to_end(self._trees.account, backup.id)
        if account is None or account.sha256 != backup.sha256:
            return None
        self._order = [*(id for id in self._order if id != backup.id), backup.id]
        return account

    async def _keep(self, backup: DirectoryBackup, body: AsyncIterator[bytes]) -> Account | None:
        try:
            await asyncio.to_thread(refuse_full, self._disk, self._reserve + backup.content_size)
            await self._make_room(backup.content_size)
            account = await self._unpack(backup, body)
            await self._make_room(0)
        except BackupRestoreFailedError:
            raise
        except (SandboxError, OSError) as error:
            log.info("a backup is not kept unpacked", backup=backup.id, reason=str(error))
            if isinstance(error, InvalidImageError | FilesystemError):
                self._unfit.add(backup.id)
            return None
        self._order.append(backup.id)
        return account

    async def _unpack(self, backup: DirectoryBackup, body: AsyncIterator[bytes]) -> Account:
        folder = await run_to_end(self._trees.begin, backup.id, self._limit)
        try:
            tree = _Backup(folder)
            limits = Limits(size=_HEADERS * self._limit)
            files = await portable.read_by(lambda reading: _fill(tree, reading, limits), body)
            self._faults.at("share.unpacked")
            names = len(await asyncio.to_thread(os.listdir, folder))
            account = Account(sha256=backup.sha256, files=files, size=tree.size, entries=names)
            await run_to_end(self._trees.publish, backup.id, account)
            self._faults.at("share.kept")
        finally:
            await run_to_end(self._trees.abandon, backup.id)
        return account

    async def place(
        self, box: "Sandbox", link: Link, backup: DirectoryBackup, target: str, account: Account
    ) -> None:
        """Answer ``fs.place`` of *target*: fill the folder that the agent made there.

        Raises:
            NotSharedError: nothing has changed, and the tree cannot be used.
            SandboxError: the agent's own.
        """
        record = box.entry.existing
        try:
            reply = await link.reply(timeout=None, silence=SILENCE)
            made = msgspec.json.decode(reply, type=_Stage)
            await self._check_room(box, record.layer_id, backup.id)
            path = str(PurePosixPath(target).parent.relative_to("/") / made.stage)
            await run_to_end(self._trees.share, backup.id, record.layer_id, path)
            self._faults.at("share.shared")
            await link.send(Kind.DATA, msgspec.json.encode({"entries": account.entries}))
            await link.send(Kind.END, b"{}")
            self._faults.at("share.sent")
        except (ValidationFailedError, FilesystemError, msgspec.MsgspecError) as error:
            await self._give_up(backup.id, error)
        except OSError as error:
            if isinstance(error, SandboxError):
                raise
            await self._give_up(backup.id, error)

    async def _give_up(self, id: str, error: Exception) -> None:
        log.info("a backup is not shared", backup=id, reason=str(error))
        if isinstance(error, FilesystemError) or getattr(error, "errno", 0) == errno.EIO:
            await self.drop(id)
        raise NotSharedError(str(error)) from error

    async def _check_room(self, box: "Sandbox", layer_id: str, id: str) -> None:
        """A limit counts what is shared, and stops only what is written."""
        wanted = await self._layers.usage(layer_id) + await run_to_end(self._trees.usage, id)
        if wanted > box.info(box.entry.existing).limits.disk:
            raise ValidationFailedError("its files do not fit into the sandbox's disk")

    async def drop(self, id: str) -> None:
        """Remove what is kept of a backup. Idempotent."""
        self._unfit.discard(id)
        if self._layers.trees is None:
            return
        try:
            await run_to_end(self._layers.trees.delete, id)
        except (SandboxError, OSError) as error:  # the store is shut: the timers try again
            log.warning("what was kept of a backup stays", backup=id, reason=str(error))

    async def all(self) -> dict[str, int]:
        """Return the bytes that each tree refers to, by the id of its backup."""
        if self._layers.trees is None:
            return {}
        ids = await run_to_end(self._trees.list)
        return {id: await run_to_end(self._trees.usage, id) for id in ids}

    async def clear(self) -> None:
        """Remove all that is kept and not in use."""
        for id in await self.all():
            if id not in self._using:
                await self.drop(id)

    async def tidy(self, known: set[str]) -> None:
        """Remove what is kept of backups that are no more, and all of it on a full disk."""
        for id in await self.all():
            if id not in known:
                await self.drop(id)
        try:
            await asyncio.to_thread(refuse_full, self._disk, self._reserve)
        except SandboxError:
            await self.clear()

    async def _make_room(self, size: int) -> None:
        """Have *size* bytes and all trees be within the limit: what was used long ago goes."""
        found = await self.all()
        total = size + sum(found.values())
        order = [*(id for id in found if id not in self._order), *self._order]
        for id in order:
            if total <= self._limit:
                return
            if id in found and id not in self._using:
                await self.drop(id)
                total -= found[id]


async def _verified(backup: DirectoryBackup, source: Checked) -> AsyncIterator[bytes]:
    async for piece in source.decompressed(backup.compression):
        yield piece
    compare(backup, source.hex())


def compare(backup: DirectoryBackup, sha256: str) -> None:
    """Raise `BackupRestoreFailedError` unless *sha256* is that of the archive that was stored."""
    if sha256 != backup.sha256:
        raise BackupRestoreFailedError(
            "the archive is damaged: it is not what was stored", context={"backup": backup.id}
        )


def _fill(tree: "_Backup", reading: int, limits: Limits) -> int:
    with os.fdopen(reading, "rb") as source:
        return fill(tree, Bounded(source, limits.size), limits)


class _Backup(Tree):
    """A folder that is filled as the agent fills one; what that would do otherwise is refused."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.size = 0

    def place(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            raise refuse(member.name, "it has a member that no backup has")
        if not (0 <= member.uid < IDS and 0 <= member.gid < IDS):
            raise refuse(member.name, "it has an owner whom no sandbox has")
        if member.mtime < 0 or member.mtime != int(member.mtime):
            raise refuse(member.name, "it has a time that no backup has")
        if any(key.startswith(attributes.PREFIX) for key in member.pax_headers):
            raise refuse(member.name, "it has extended attributes, which are not shared")
        member.mode &= 0o777
        if member.isreg():
            self.size += member.size
        super().place(tar, member)

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, parent: int, name: str) -> None:
        """Runs of zeros become holes."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        content = tar.extractfile(member)
        descriptor = os.open(name, flags, 0o600, dir_fd=parent)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            while content is not None and (data := content.read(len(_ZEROS))):
                _append(file, data)
            file.truncate(member.size)
            self._set_attributes(descriptor, member)


def _append(file: "BinaryIO", data: bytes) -> None:
    if data == _ZEROS:
        file.seek(len(data), os.SEEK_CUR)
        return
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
