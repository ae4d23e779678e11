"""Backups of directories: archives outside the sandbox, streamed both ways in flat memory.

The agent packs and unpacks; bytes are compressed and counted here. Files come first and the row
after them, and a row goes before its file, so whatever a crash leaves is an archive without a row,
which the next sweep removes. Both directions have the rights of root inside: a backup is of all
that is there, with its owners.
"""

import posixpath
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import structlog

from atoll.engine.lifecycle.faults import Faults
from atoll.engine.link import early
from atoll.engine.link.link import Link, LinkError, SilenceError
from atoll.engine.storage import archives
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
)
from atoll.storage.vault import Vault
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

ROOTS = ("/workspace", "/home", "/tmp", "/var/tmp", "/app")  # paths inside
"""Where directories may be backed up and put back: what is the user's, not the image's."""

TTL = timedelta(days=3)
"""How long a backup is kept when nothing is said, as in 0.12."""

MAX_NAME = 256
"""Characters of a backup's name."""
MAX_EXCLUDES = 1_000
"""Patterns of one backup, each at most 4,096 characters."""

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
        vault: where archives are.
        faults: where a test has the engine die.
    """

    def __init__(self, store: Store, vault: Vault, faults: Faults) -> None:
        self.shelf = Shelf(store, "backups", DirectoryBackup)
        self._vault = vault
        self._faults = faults
        self._making: set[str] = set()  # no row tells of these yet

    async def create(self, box: "Sandbox", wanted: CreateBackup) -> DirectoryBackup:
        """Back up a directory of *box*, which is woken for it.

        Raises:
            InvalidBackupConfigError: the directory or an option is not allowed.
            FileNotFoundError: there is no such directory.
            SecurityError: it is a link.
            NoSpaceError: the host's disk is full.
            BackupCreateFailedError: the sandbox ended meanwhile, or the archive is larger than its
                disk may be.
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
        self._making.add(id)
        try:
            async with _opened(box, header, BackupCreateFailedError) as link:
                made = await self._written(id, box, wanted, link)
            self._faults.at("backup.written")
            await self.shelf.add(box.namespace, id, box.id, made.expires_at, made)
            self._faults.at("backup.recorded")
        except BaseException:
            await self._vault.delete(id)
            raise
        finally:
            self._making.discard(id)
        return made

    async def _written(
        self, id: str, box: "Sandbox", wanted: CreateBackup, link: Link
    ) -> DirectoryBackup:
        await link.reply(timeout=None, silence=SILENCE)
        disk = box.info(box.entry.existing).limits.disk
        body = _at_most(disk * MAX_EXPANSION, link.body(SILENCE))
        async with self._vault.writing(id) as archive:
            async for piece in archives.compressed(body, wanted.compression):
                await archive.write(piece)
                if archive.size > disk:  # it is outside of the sandbox's disk
                    raise _too_large("the archive", disk)
        told = _decoded(link.end, _Packed)
        now = rules.now()
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
        )

    async def restore(self, box: "Sandbox", wanted: RestoreBackup) -> Restored:
        """Put a backup of its namespace back into *box*, in place of the whole directory.

        Raises:
            BackupNotFoundError: there is no such backup.
            BackupExpiredError: its time is over.
            InvalidBackupConfigError: the directory is not allowed.
            SecurityError: it is a link.
            BackupRestoreFailedError: the archive is damaged; the directory is as it was.
        """
        backup = await self.get(box.namespace, wanted.backup)
        target = directory(wanted.dir or backup.dir)
        header = {"op": "fs.restore", "path": target, "user": "0:0"}
        with self._vault.opened(backup.id) as file:
            source = archives.Checked(file)
            async with _opened(box, header, BackupRestoreFailedError) as link:
                # The agent changes nothing before it has the END of a whole archive.
                with early.answers():
                    async for piece in source.decompressed(backup.compression):
                        await link.send_piece(piece, SILENCE)
                        self._faults.at("unpack.sending")
                    _compare(backup, source.hex())
                    await link.send(Kind.END, b"{}")
                    self._faults.at("unpack.sent")
                reply = await link.reply(timeout=None, silence=SILENCE)
        done = _decoded(reply, UploadResult)
        return Restored(id=backup.id, dir=target, files=done.files, size=done.size)

    async def get(self, namespace: str, id: str) -> DirectoryBackup:
        """Return a backup of a namespace; raise as `restore`."""
        try:
            uuid.UUID(id)
        except ValueError as error:
            raise InvalidBackupConfigError(
                f"{id[:80]!r} is not the id of a backup", context={"field": "backup"}
            ) from error
        found = await self.shelf.get(namespace, id)
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

    async def list(self, namespace: str, wanted: ListBackups) -> BackupPage:
        """Return one page of a namespace's backups, the oldest first."""
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
        """Forget a backup. Idempotent."""
        if await self.shelf.get(namespace, id):
            await self._remove(id)

    async def tidy(self) -> None:
        """Remove backups whose time is over, and archives that no row tells of."""
        rows, now = await self.shelf.ends(), rules.now().timestamp()
        for id, ends in rows.items():
            if ends is not None and ends <= now:
                log.info("a backup's time is over", backup=id)
                await self._remove(id)
        for id in await self.orphans():
            log.info("removing an orphaned archive", backup=id)
            await self._vault.delete(id)

    async def orphans(self) -> set[str]:
        """Return the archives that are stored and have no row, but for those being made."""
        stored, making = set(await self._vault.list()), set(self._making)
        return stored - making - (await self.shelf.ends()).keys()

    async def _remove(self, id: str) -> None:
        await self.shelf.delete(id)
        self._faults.at("backup.forgotten")
        await self._vault.delete(id)


def directory(path: str) -> str:
    """Return the directory *path* means.

    Raises:
        InvalidBackupConfigError: it is not absolute, has a ``..``, or is not below `ROOTS`.
    """
    clean = "/" + posixpath.normpath(path).lstrip("/")
    allowed = any(clean == root or clean.startswith(root + "/") for root in ROOTS)
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path or not allowed:
        raise InvalidBackupConfigError(
            f"{path[:200]!r} is not a directory that can be backed up",
            context={"field": "dir", "dir": path[:200]},
            suggestion=f"name an absolute path below {', '.join(ROOTS)}",
        )
    return clean


def check(wanted: CreateBackup) -> None:
    """Refuse what could never be backed up, before the sandbox is woken; raise as `create`."""
    directory(wanted.dir)
    archives.check(wanted.compression)
    if len(wanted.name or "") > MAX_NAME or not (wanted.name or "x").isprintable():
        raise InvalidBackupConfigError(
            f"a name is at most {MAX_NAME} printable characters", context={"field": "name"}
        )
    if wanted.ttl_ms is not None and not 0 < wanted.ttl_ms <= rules.MAX_DURATION:
        raise InvalidBackupConfigError("a backup lives some time", context={"field": "ttl"})
    if len(wanted.excludes) > MAX_EXCLUDES or any(
        len(line) > 4_096 or "\n" in line or "\0" in line for line in wanted.excludes
    ):
        raise InvalidBackupConfigError(
            f"at most {MAX_EXCLUDES} patterns of one line each", context={"field": "excludes"}
        )


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


def _compare(backup: DirectoryBackup, sha256: str) -> None:
    if sha256 != backup.sha256:
        raise BackupRestoreFailedError(
            "the archive is damaged: it is not what was stored", context={"backup": backup.id}
        )


@asynccontextmanager
async def _opened(
    box: "Sandbox", header: Mapping[str, Any], failure: type[SandboxError]
) -> AsyncIterator[Link]:
    async with box.archiving, box.use() as endpoint, await endpoint.open(header) as link:
        try:
            yield link
        except SilenceError as error:
            raise failure(
                f"{header['path']} made no progress for {SILENCE:g} s",
                context={"path": header["path"], "detail": str(error)},
                suggestion="its disk or a mount in it does not answer",
            ) from error
