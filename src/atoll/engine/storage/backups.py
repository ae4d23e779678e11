"""Backups of directories: archives outside the sandbox, streamed both ways in flat memory.

The agent packs and unpacks; bytes are compressed and counted here. Archives come first and the row
after them, and a row goes before its archive, so whatever a crash leaves is an archive without a row,
which the next sweep removes. Both directions have the rights of root inside: a backup is of all
that is there, with its owners.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import structlog

from atoll.engine.lifecycle.faults import Faults
from atoll.engine.link import early
from atoll.engine.link.link import Link, LinkError, SilenceError
from atoll.engine.storage import archives
from atoll.engine.storage.backup_options import check, directory, is_id
from atoll.engine.storage.unpacked import NotSharedError, Unpacked, compare
from atoll.engine.storage.vaults import Vaults, told_as
from atoll.engine.store import record as rules
from atoll.engine.store.shelf import Shelf
from atoll.engine.store.store import Store
from atoll.errors import (
    BackupCreateFailedError,
    BackupExpiredError,
    BackupNotFoundError,
    BackupRestoreFailedError,
    InvalidBackupConfigError,
    SandboxError,
    ValidationFailedError,
)
from atoll.storage.vault import Archives, Writing
from atoll.wire.backups import (
    BackupPage,
    CreateBackup,
    DirectoryBackup,
    ListBackups,
    RestoreBackup,
    Restored,
)
from atoll.wire.files import UploadResult
from atoll.wire.frames import Kind

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

log = structlog.get_logger(__name__)

T = TypeVar("T")

TTL = timedelta(days=3)
"""How long a backup is kept when nothing is said, as in 0.12."""

MAX_EXPANSION = 16
"""How many times the disk limit of its sandbox the content of a backup may be. Holes are content:
a file of terabytes takes nothing of the disk inside, and hours of the engine."""

SILENCE = 120.0
"""Seconds one step inside may take: a slow disk syncs hundreds of MB in that time."""


class _Packed(msgspec.Struct, rename="camel"):
    """What the agent tells of an archive it has sent."""

    files: int = 0
    size: int = 0
    changed: list[str] = []
    skipped: list[str] = []


class Backups:
    """The backups of all namespaces.

    Args:
        store: an open store.
        vaults: where archives are.
        unpacked: what of them is kept unpacked.
        faults: where a test has the engine die.
    """

    def __init__(self, store: Store, vaults: Vaults, unpacked: Unpacked, faults: Faults) -> None:
        self.shelf = Shelf(store, "backups", DirectoryBackup)
        self._vaults = vaults
        self.unpacked = unpacked
        self._faults = faults
        self._tidying: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Make what archives need."""
        self._vaults.open()

    async def close(self) -> None:
        """Leave what is under way to the next engine."""
        if self._tidying:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)
        await self._vaults.close()

    async def create(self, box: "Sandbox", wanted: CreateBackup) -> DirectoryBackup:
        """Back up a directory of *box*, which is woken for it.

        Raises:
            InvalidBackupConfigError: the directory or an option is not allowed.
            FileNotFoundError: there is no such directory.
            SecurityError: it is a link.
            NoSpaceError: the host's disk is full.
            BackupCreateFailedError: the sandbox ended meanwhile, the bucket refuses or does not
                answer, or the archive is larger than its disk may be.
        """
        check(wanted)
        id = str(uuid.uuid4())
        header = {
            "op": "fs.backup",
            "path": directory(wanted.dir),
            "excludes": wanted.excludes,
            "gitignore": wanted.gitignore,
            "user": "0:0",
        }
        vault = self._vaults.chosen(local=wanted.local_bucket)
        async with _opened(box, header, BackupCreateFailedError) as link:
            await link.reply(timeout=None, silence=SILENCE)
            with told_as(BackupCreateFailedError):
                async with vault.writing(id) as archive:
                    await self._write(box, wanted, link, archive)
                    made = self._described(id, box, wanted, archive, _decoded(link.end, _Packed))
                    await archive.publish(msgspec.json.encode(made))
                    self._faults.at("backup.written")
                    await self._record(made, archive)
                    self._faults.at("backup.recorded")
        return made

    async def _write(
        self, box: "Sandbox", wanted: CreateBackup, link: Link, archive: Writing
    ) -> None:
        disk = _disk(box)
        body = _at_most(disk * MAX_EXPANSION, link.body(SILENCE))
        async for piece in archives.compressed(body, wanted.compression):
            await archive.write(piece)
            self._faults.at("backup.writing")
            if archive.size > disk:  # it is outside of the sandbox's disk
                raise _too_large("the archive", disk)
        await archive.finish()
        self._faults.at("backup.finished")

    def _described(
        self, id: str, box: "Sandbox", wanted: CreateBackup, archive: Writing, told: _Packed
    ) -> DirectoryBackup:
        now, bucket = rules.now(), self._vaults.bucket
        ttl = TTL if wanted.ttl_ms is None else timedelta(milliseconds=wanted.ttl_ms)
        return DirectoryBackup(
            id=id,
            dir=directory(wanted.dir),
            namespace=box.namespace,
            sandbox=box.id,
            name=wanted.name,
            compression=wanted.compression,
            size=archive.size,
            content_size=told.size,
            files=told.files,
            sha256=archive.sha256,
            created_at=now,
            expires_at=now + ttl,
            skipped=told.skipped,
            changed=told.changed,
            bucket=bucket.name if bucket and not wanted.local_bucket else None,
            local_bucket=wanted.local_bucket,
        )

    async def _record(self, made: DirectoryBackup, archive: Writing) -> None:
        """Add the row. A caller who leaves meanwhile does not part it from its archive."""
        adding = asyncio.create_task(
            self.shelf.add(made.namespace, made.id, made.sandbox, made.expires_at, made)
        )
        try:
            await asyncio.shield(adding)
        finally:
            await asyncio.wait({adding})
            if adding.exception() is None:
                archive.keep()

    async def restore(self, box: "Sandbox", wanted: RestoreBackup) -> Restored:
        """Put a backup of its namespace back into *box*, in place of the whole directory.

        Raises:
            BackupNotFoundError: there is no such backup.
            BackupExpiredError: its time is over.
            InvalidBackupConfigError: the directory is not allowed.
            SecurityError: it is a link.
            BackupRestoreFailedError: the archive is damaged, or its bucket does not answer; the
                directory is as it was.
        """
        backup = await self.get(box.namespace, wanted.backup)
        target = directory(wanted.dir or backup.dir)
        if shared := await self._shared(box, backup, target):
            return shared
        header = {"op": "fs.restore", "path": target, "user": "0:0"}
        vault = self._vaults.holding(backup)
        async with (
            _read(vault, backup.id) as source,
            _opened(box, header, BackupRestoreFailedError) as link,
        ):
            # The agent changes nothing before it has the END of a whole archive.
            with early.answers():
                async for piece in source.decompressed(backup.compression):
                    await link.send_piece(piece, SILENCE)
                    self._faults.at("unpack.sending")
                compare(backup, source.hex())
                await link.send(Kind.END, b"{}")
                self._faults.at("unpack.sent")
            reply = await link.reply(timeout=None, silence=SILENCE)
        done = _decoded(reply, UploadResult)
        return Restored(id=backup.id, dir=target, files=done.files, size=done.size)

    async def _shared(
        self, box: "Sandbox", backup: DirectoryBackup, target: str
    ) -> Restored | None:
        """Restore by sharing the files of a tree that is kept; None: it has to be unpacked inside.

        Of a backup that another engine made nothing is kept: nobody here hears of its end.
        """
        async with box.use():
            if not self.unpacked.suits(box, backup) or await self.shelf.find(backup.id) is None:
                return None
        with self.unpacked.used(backup.id):
            archive = _read(self._vaults.holding(backup), backup.id)
            if (account := await self.unpacked.obtain(backup, archive)) is None:
                return None
            if await self.shelf.find(backup.id) is None:  # deleted meanwhile: nobody else drops it
                await self.unpacked.drop(backup.id)
            header = {"op": "fs.place", "path": target, "user": "0:0"}
            try:
                async with _opened(box, header, BackupRestoreFailedError) as link:
                    await self.unpacked.place(box, link, backup, target, account)
                    await link.reply(timeout=None, silence=SILENCE)
            except (NotSharedError, ValidationFailedError):
                await self.get(box.namespace, backup.id)  # it may have been deleted meanwhile
                return None
        return Restored(id=backup.id, dir=target, files=account.files, size=account.size)

    async def get(self, namespace: str, id: str) -> DirectoryBackup:
        """Return a backup of a namespace; raise as `restore`."""
        if not is_id(id):
            raise InvalidBackupConfigError(
                f"{id[:80]!r} is not the id of a backup", context={"field": "backup"}
            )
        found = await self._found(namespace, id)
        if found is None:
            raise BackupNotFoundError(
                f"no backup {id} in namespace {namespace!r}",
                context={"namespace": namespace, "backup": id},
            )
        if found.expires_at and found.expires_at <= rules.now():
            raise BackupExpiredError(
                f"the time of backup {id} is over",
                context={"backup": id, "expiresAt": found.expires_at.isoformat()},
                suggestion="give create_backup a longer ttl",
            )
        return found

    async def _found(self, namespace: str, id: str) -> DirectoryBackup | None:
        found = await self.shelf.get(namespace, id)
        if found is None and await self.shelf.find(id) is None:
            found = await self._vaults.elsewhere(namespace, id)
        return found

    async def list(self, namespace: str, wanted: ListBackups) -> BackupPage:
        """Return one page of the backups of a namespace that were made here, the oldest first."""
        now = rules.now()
        page = await self.shelf.page(
            namespace,
            sandbox=wanted.sandbox,
            cursor=wanted.cursor,
            limit=wanted.limit,
            accept=lambda backup: backup.expires_at is None or backup.expires_at > now,
        )
        return BackupPage(backups=page.entries, cursor=page.cursor)

    async def delete(self, namespace: str, id: str) -> None:
        """Forget a backup. Idempotent.

        Raises:
            BackupRestoreFailedError: it is not known here, and the bucket does not answer.
        """
        if is_id(id) and (found := await self._found(namespace, id)):
            await self._remove(found)

    async def tidy(self) -> None:
        """Remove backups whose time is over, and archives that no row tells of.

        A bucket is looked after behind: one that is silent keeps nobody waiting.
        """
        for backup in await self._expired(in_bucket=False):
            await self._remove(backup)
        for id in await self._vaults.local.orphans(self.shelf.ends):
            log.info("removing an orphaned archive", backup=id)
            await self._vaults.local.delete(id)
        await self.unpacked.tidy(set(await self.shelf.ends()))
        if self._vaults.bucket and (self._tidying is None or self._tidying.done()):
            self._tidying = asyncio.create_task(self._tidy_bucket(self._vaults.bucket))

    async def _tidy_bucket(self, bucket: Archives) -> None:
        try:
            with told_as(BackupRestoreFailedError):
                for backup in await self._expired(in_bucket=True):
                    await self._remove(backup)
                for id in await bucket.orphans(self.shelf.ends):
                    await bucket.delete(id)
        except (SandboxError, OSError) as error:  # the timers try again
            log.warning("the bucket of backups is not tidied", reason=str(error))

    async def _expired(self, *, in_bucket: bool) -> Sequence[DirectoryBackup]:
        rows, now = await self.shelf.ends(), rules.now().timestamp()
        over = [id for id, ends in rows.items() if ends is not None and ends <= now]
        found = [await self.shelf.find(id) for id in over]
        return [
            one
            for one in found
            if one and (one.bucket is not None) == in_bucket and self._vaults.has(one)
        ]

    async def orphans(self) -> AsyncIterator[tuple[str, str]]:
        """Yield kind and id of what has no row: an archive, or a note of one in the bucket."""
        for id in await self._vaults.local.orphans(self.shelf.ends):
            yield "archive", id
        if self._vaults.bucket:
            for id in await self._vaults.bucket.orphans(self.shelf.ends):
                yield "note", id

    async def _remove(self, backup: DirectoryBackup) -> None:
        log.info("a backup goes", backup=backup.id)
        async with self._vaults.holding(backup).deleting(backup.id):
            await self.shelf.delete(backup.id)
            self._faults.at("backup.forgotten")
        await self.unpacked.drop(backup.id)


def _disk(box: "Sandbox") -> int:
    return box.info(box.entry.existing).limits.disk


async def _at_most(limit: int, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for piece in body:
        size += len(piece)
        if size > limit:
            raise _too_large("the directory, holes of its files included,", limit)
        yield piece


def _too_large(what: str, limit: int) -> BackupCreateFailedError:
    return BackupCreateFailedError(
        f"{what} is larger than {limit:,} bytes",
        context={"limit": limit},
        suggestion="exclude what can be made again, or use another compression",
    )


def _decoded(payload: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(payload, type=type)
    except msgspec.MsgspecError as error:
        raise LinkError(f"the agent's account of an archive is malformed ({error})") from error


@asynccontextmanager
async def _read(vault: Archives, id: str) -> AsyncIterator[archives.Checked]:
    with told_as(BackupRestoreFailedError):
        async with vault.opened(id) as file:
            yield archives.Checked(file, vault.threads)


@asynccontextmanager
async def _opened(
    box: "Sandbox", header: Mapping[str, Any], failure: type[SandboxError]
) -> AsyncIterator[Link]:
    async with box.archiving, box.use() as endpoint:
        # The agent refuses a file that is too large before it reads it; a restore has no use of it.
        bounded = {**header, "max_content": _disk(box) * MAX_EXPANSION}
        async with await endpoint.open(bounded) as link:
            try:
                yield link
            except SilenceError as error:
                raise failure(
                    f"{header['path']} made no progress for {SILENCE:g} s",
                    context={"path": header["path"], "detail": str(error)},
                    suggestion="its disk or a mount in it does not answer",
                ) from error
