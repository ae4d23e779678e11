"""Buckets as folders of a sandbox."""

from datetime import datetime

import msgspec

from atoll.wire.base import Request, Result

HIDDEN = ".atoll-multipart/"
"""Where parts of uploads of a Worker wait in a bucket; folders and listings do not show it."""


class BucketCredentials(Request, frozen=True, kw_only=True):
    """A key of the bucket; of Azure, name and key of the account. Its text shows no secret."""

    access_key_id: str
    secret_access_key: str

    def __repr__(self) -> str:
        return f"BucketCredentials(access_key_id={self.access_key_id[:4]!r}…)"


class MountBucket(Request, frozen=True, kw_only=True):
    """Which bucket to mount where: by name and endpoint, or a `binding` of the engine's settings."""

    path: str
    bucket: str | None = None
    binding: str | None = None
    endpoint: str | None = None
    provider: str | None = None
    credentials: BucketCredentials | None = None
    read_only: bool = False
    prefix: str | None = None
    s3fs_options: list[str] = msgspec.field(default_factory=list, name="s3fsOptions")
    credential_proxy: bool = False  # credentials are outside in any case
    local_bucket: bool = False  # the folder that stands for the binding in development


class UnmountBucket(Request, frozen=True, kw_only=True):
    """Which mount to end."""

    path: str


class BucketMount(Result, frozen=True, kw_only=True):
    """A mount. `active`: it is served now; `reason` is why not, for one that should be."""

    path: str
    bucket: str
    endpoint: str
    provider: str
    prefix: str = ""
    read_only: bool = False
    active: bool = False
    reason: str | None = None
    created_at: datetime


class BucketMounts(Result, frozen=True, kw_only=True):
    """All mounts of a sandbox, by path."""

    mounts: list[BucketMount]
