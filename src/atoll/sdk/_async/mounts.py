"""Buckets as folders of a sandbox."""

from collections.abc import Mapping, Sequence

from atoll.sdk import _aio, _arguments, _mounts
from atoll.sdk._async.target import Target
from atoll.wire import ops
from atoll.wire.base import Empty
from atoll.wire.mounts import (
    BucketCredentials,
    BucketMount,
    MountBucket,
    UnmountBucket,
)

_PATIENCE = 60.0
"""Seconds for an answer: a bucket that is silent is given up well before."""


class Mounts(Target):
    """Mounting and unmounting."""

    async def mount_bucket(
        self,
        bucket: str | None = None,
        path: str = "/mnt/bucket",
        *,
        binding: str | None = None,
        endpoint: str | None = None,
        provider: str | None = None,
        credentials: BucketCredentials | Mapping[str, str] | None = None,
        read_only: bool = False,
        prefix: str | None = None,
        s3fs_options: Sequence[str] = (),
        credential_proxy: bool = False,
        local_bucket: bool = False,
    ) -> BucketMount:
        """Mount a bucket at a folder, which is missing or empty. It comes back on every wake.

        The credentials stay outside the sandbox, whatever is asked for.

        Args:
            bucket: its name, of Azure that of a container; with neither endpoint nor provider the
                name of a binding.
            path: where, absolute.
            binding: instead of a bucket and endpoint: the name of one in the engine's settings.
            endpoint: an ``https://host`` without a path; None: what the provider or the
                environment says.
            provider: "s3", "r2", "gcs", "minio" or "azure"; None: told from the endpoint.
            credentials: `access_key_id` and `secret_access_key`, of Azure the account's name and
                key; None: those of this process's environment, ``R2_ACCESS_KEY_ID``,
                ``AWS_ACCESS_KEY_ID``, ``AZURE_STORAGE_ACCOUNT`` and so on.
            read_only: refuse all changes.
            prefix: show only what is below it.
            s3fs_options: of the client, ``"name"`` or ``"name=value"``; see docs/buckets.md.
            credential_proxy: accepted as in 0.12; it changes nothing.
            local_bucket: mount the folder that stands for the binding in development: of
                ``r2_buckets`` under `atoll dev`, of `Environment.offer_buckets`, or of the engine's
                settings.

        Raises:
            InvalidMountConfigError: a field is wrong, or something is at the path.
            MissingCredentialsError: there are none.
            SecurityError: a link is on the way to the path.
            BucketMountError: the bucket cannot be read; the message is its server's.
            NotSupportedByRuntimeError: no client here can do it, or the runtime has no mounts.
        """
        if bucket is not None and binding is None and endpoint is None and provider is None:
            bucket, binding = None, bucket
        environment = {} if binding else _aio.environment()
        request = MountBucket(
            path=path,
            bucket=bucket,
            binding=binding,
            endpoint=_mounts.endpoint(endpoint, provider, environment),
            provider=provider,
            credentials=_mounts.credentials(credentials, endpoint, provider, environment),
            read_only=read_only,
            prefix=prefix,
            s3fs_options=_arguments.listed("s3fs_options", s3fs_options),
            credential_proxy=credential_proxy,
            local_bucket=local_bucket,
        )
        return await self._call(ops.MOUNT_BUCKET, request, timeout=_PATIENCE)

    async def unmount_bucket(self, path: str) -> None:
        """End a mount; what was written and closed is in the bucket.

        Raises:
            MountNotFoundError: nothing is mounted there.
            BucketUnmountError: it is in use; nothing was changed.
        """
        await self._call(ops.UNMOUNT_BUCKET, UnmountBucket(path=path), timeout=_PATIENCE)

    async def list_mounts(self) -> list[BucketMount]:
        """Return the mounts, by path. Wakes nothing."""
        return (await self._call(ops.LIST_MOUNTS, Empty())).mounts
