"""Backups of a sandbox's directories."""

from collections.abc import Sequence

from atoll.sdk import _arguments
from atoll.sdk._async.target import Target
from atoll.sdk._async.transport import Transport
from atoll.sdk._backups import Backup, named
from atoll.wire import ops
from atoll.wire.backups import (
    BackupPage,
    CreateBackup,
    DirectoryBackup,
    ListBackups,
    RestoreBackup,
    Restored,
)
from atoll.wire.base import Duration, Empty


class Backups(Target):
    """Backing up and putting back."""

    async def create_backup(
        self,
        *,
        dir: str,
        name: str | None = None,
        ttl: Duration = "3d",
        gitignore: bool = False,
        excludes: Sequence[str] = (),
        compression: str = "zstd",
        local_bucket: bool = False,
    ) -> DirectoryBackup:
        """Keep a directory as it is now, in an archive outside the sandbox.

        Files are read one after the other while the sandbox runs; what was written meanwhile is
        named in `changed`. Sockets, devices, set-id bits
        and what is mounted in it are left out.

        Args:
            dir: an absolute path below /workspace, /home, /tmp, /var/tmp or /app.
            name: for people.
            ttl: when it goes.
            gitignore: leave out what the ignore files of the tree name, and ``.git``.
            excludes: leave out what these lines name, as in a ``.gitignore`` of the directory.
            compression: "zstd", "gzip" or "none".
            local_bucket: keep the archive on the engine's host, whatever bucket its settings name.

        Returns:
            A plain value: store it, and give it (or its `to_dict()`) to `restore_backup`.

        Raises:
            InvalidBackupConfigError: the directory or an option is not allowed.
            FileNotFoundError: there is no such directory.
            SecurityError: it, or a directory above it, is a link.
            NoSpaceError: the host's disk is full.
            BackupCreateFailedError: the bucket refuses or does not answer; nothing is kept.
        """
        request = CreateBackup(
            dir=dir,
            name=name,
            ttl_ms=_arguments.lifetime(ttl),
            gitignore=gitignore,
            excludes=_arguments.listed("excludes", excludes),
            compression=compression,
            local_bucket=local_bucket,
        )
        return await self._call(ops.CREATE_BACKUP, request, timeout=None)

    async def restore_backup(self, backup: Backup, *, dir: str | None = None) -> Restored:
        """Put a directory back as it was: all of it, or nothing is changed.

        What is in the directory now is replaced. Owners, modes, links and empty directories are as
        they were. Backups of other sandboxes of the namespace can be put back too.

        Args:
            backup: what `create_backup` returned, its `to_dict()`, or the id.
            dir: put it here instead of in the `dir` that *backup* says, or where it came from if that
                is an id.

        Raises:
            BackupNotFoundError: there is none of this id.
            BackupExpiredError: its time is over.
            InvalidBackupConfigError: the id or the directory is malformed or not allowed.
            SecurityError: the directory, or one above it, is a link.
            ResourceBusyError: something is mounted in the directory.
            BackupRestoreFailedError: the archive is damaged, or its bucket does not answer.
        """
        id, said = named(backup)
        request = RestoreBackup(backup=id, dir=said if dir is None else dir)
        return await self._call(ops.RESTORE_BACKUP, request, timeout=None)


class BackupShelf:
    """The backups of an engine: ``env.backups``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self,
        *,
        namespace: str = "Sandbox",
        sandbox: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> BackupPage:
        """Return one page of a namespace's backups, the oldest first.

        Args:
            namespace: its name.
            sandbox: only those of this sandbox.
            cursor: `cursor` of the page before.
            limit: most entries of this page.
        """
        request = ListBackups(sandbox=sandbox, cursor=cursor, limit=limit)
        return await self._transport.call(ops.LIST_BACKUPS, {"namespace": namespace}, request)

    async def get(self, backup: Backup, *, namespace: str = "Sandbox") -> DirectoryBackup:
        """Return a backup; raise as `Backups.restore_backup`."""
        place = {"namespace": namespace, "backup": named(backup).id}
        return await self._transport.call(ops.GET_BACKUP, place, Empty())

    async def delete(self, backup: Backup, *, namespace: str = "Sandbox") -> None:
        """Delete a backup. Idempotent."""
        place = {"namespace": namespace, "backup": named(backup).id}
        await self._transport.call(ops.DELETE_BACKUP, place, Empty())
