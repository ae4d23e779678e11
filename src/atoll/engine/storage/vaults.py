"""Where the archives of backups are: on the host, or in the bucket of the settings.

What was made here has a row that says where it is. What another engine made in the same bucket is
told by the bucket itself, to whoever has its id and is of its namespace.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from atoll.errors import (
    BackupRestoreFailedError,
    InvalidConfigError,
    InvalidMountConfigError,
    SandboxError,
)
from atoll.settings import MB, BackupSettings, Settings
from atoll.storage.bucket_vault import BucketVault
from atoll.storage.buckets import options
from atoll.storage.buckets.objects import BucketError, Objects
from atoll.storage.buckets.options import Credentials, Source
from atoll.storage.intents import Intents
from atoll.storage.vault import Archives, Vault
from atoll.wire.backups import DirectoryBackup


class Vaults:
    """All places of archives.

    Args:
        local: on the host.
        bucket: in the bucket, where there is one.
    """

    def __init__(self, local: Vault, bucket: BucketVault | None) -> None:
        self.local = local
        self.bucket = bucket

    @classmethod
    def of(cls, settings: Settings) -> "Vaults":
        """Return those of *settings*; nothing is made or asked.

        Raises:
            InvalidConfigError: the bucket of the settings cannot be one.
        """
        state = settings.storage.state_dir
        local = Vault(state / "backups", settings.storage.reserve_mb * MB)
        found = bucket_of(settings.backups)
        if found is None:
            return cls(local, None)
        return cls(local, BucketVault(Objects.of(*found), Intents(state / "backup-intents")))

    def open(self) -> None:
        """Make the folders that are needed here."""
        self.local.open()
        if self.bucket:
            self.bucket.open()

    async def close(self) -> None:
        """Leave what is under way."""
        if self.bucket:
            await self.bucket.close()

    def chosen(self, *, local: bool) -> Archives:
        """Return where a new archive goes."""
        return self.local if local or self.bucket is None else self.bucket

    def has(self, backup: DirectoryBackup) -> bool:
        """Whether the place of a backup is one of these."""
        return backup.bucket is None or (
            self.bucket is not None and backup.bucket == self.bucket.name
        )

    def holding(self, backup: DirectoryBackup) -> Archives:
        """Return where an archive is.

        Raises:
            BackupRestoreFailedError: it is in a bucket that the settings do not name any more.
        """
        if not self.has(backup):
            raise BackupRestoreFailedError(
                f"backup {backup.id} is in bucket {backup.bucket!r}, which this engine does not have",
                context={"backup": backup.id, "bucket": backup.bucket, "reason": "configuration"},
                suggestion="name that bucket in the settings of backups",
            )
        return self.chosen(local=backup.bucket is None)

    async def elsewhere(self, namespace: str, id: str) -> DirectoryBackup | None:
        """Return a backup of a namespace that another engine made in the same bucket, or None.

        Raises:
            BackupRestoreFailedError: the bucket does not answer, or has something else there.
        """
        if self.bucket is None:
            return None
        with told_as(BackupRestoreFailedError):
            account = await self.bucket.account(id)
        if account is None:
            return None
        try:
            found = msgspec.json.decode(account, type=DirectoryBackup)
        except msgspec.MsgspecError as error:
            raise BackupRestoreFailedError(
                "what the bucket has there is no backup", context={"backup": id}
            ) from error
        ours = (found.id, found.namespace) == (id, namespace)
        return msgspec.structs.replace(found, bucket=self.bucket.name) if ours else None


def bucket_of(settings: BackupSettings) -> tuple[Source, Credentials] | None:
    """Return the bucket of the settings and its key; None where none is named. Pure.

    Raises:
        InvalidConfigError: it cannot be one.
    """
    if settings.bucket is None:
        return None
    key, secret = settings.access_key_id, settings.secret_access_key
    if not key or not secret:
        raise _refused(
            "there is no key for the bucket of backups",
            "set backups.access_key_id and backups.secret_access_key, or R2_… or AWS_… of both",
        )
    try:
        source = options.source(
            bucket=settings.bucket,
            endpoint=settings.endpoint,
            provider=None if settings.endpoint else "s3",
            prefix=None,
            read_only=False,
            given=(),
        )
        credentials = Credentials(access_key_id=key, secret_access_key=secret)
        options.check_credentials(credentials)
    except InvalidMountConfigError as error:
        raise _refused(f"the bucket of backups: {error.message}") from error
    if source.provider == "azure":
        raise _refused("backups go to buckets that speak S3, not to Azure")
    return source, credentials


def _refused(message: str, suggestion: str | None = None) -> InvalidConfigError:
    return InvalidConfigError(message, context={"setting": "backups"}, suggestion=suggestion)


@contextmanager
def told_as(kind: type[SandboxError]) -> Iterator[None]:
    """Have what a bucket refuses be an error of this kind."""
    try:
        yield
    except BucketError as error:
        raise kind(
            str(error),
            context={"bucket": error.bucket, "reason": error.reason},
            suggestion=error.advice,
        ) from error
