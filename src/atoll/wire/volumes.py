"""Named volumes: files that sandboxes of a namespace have in common, and that outlive them."""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from atoll.wire.base import Request, Result, Whole


class CreateVolume(Request, frozen=True, kw_only=True):
    """A new volume. `size` is its limit in bytes.

    `read_only`: sandboxes only read it. `shared`: several may write to it at the same time.
    """

    name: str
    size: Whole = 1_000_000_000
    read_only: bool = False
    shared: bool = False


class VolumeInfo(Result, frozen=True, kw_only=True):
    """A volume. Sizes in bytes: `size` is its limit, `used` what it takes now.

    `sandboxes` are the ids of those that have it mounted.
    """

    name: str
    namespace: str
    size: int
    used: int = 0
    read_only: bool = False
    shared: bool = False
    created_at: datetime
    sandboxes: list[str] = msgspec.field(default_factory=list)


class ListVolumes(Request, frozen=True, kw_only=True):
    """Which volumes to list."""

    cursor: str | None = None
    limit: Whole = 100


class VolumePage(Result, frozen=True, kw_only=True):
    """One page of a listing, in order of name; `cursor` is None on the last."""

    volumes: list[VolumeInfo]
    cursor: str | None = None

    def __iter__(self) -> Iterator[VolumeInfo]:
        return iter(self.volumes)

    def __len__(self) -> int:
        return len(self.volumes)


class VolumePath(Request, frozen=True, kw_only=True):
    """A path in a volume, from its top."""

    path: str


class ListVolumeFiles(Request, frozen=True, kw_only=True):
    """Which folder of a volume to list."""

    path: str = ""
    cursor: str | None = None
    limit: Whole = 1_000


class VolumeFile(Result, frozen=True, kw_only=True):
    """A file or folder in a volume. `path` is from the volume's top; size in bytes.

    `type` is file, directory, symlink or other. For names that are not UTF-8 see `wire.files`.
    """

    path: str
    type: str = "file"
    size: int = 0
    mode: int = 0o644
    modified_at: datetime
    target: str | None = None  # of a symbolic link


class VolumeFileList(Result, frozen=True, kw_only=True):
    """One page of a folder, in order of name; `cursor` is None on the last."""

    files: list[VolumeFile]
    cursor: str | None = None

    def __iter__(self) -> Iterator[VolumeFile]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


class VolumeWritten(Result, frozen=True, kw_only=True):
    """A file was written to a volume and is durable. `size` in bytes."""

    success: bool = True
    path: str
    size: int
    sha256: str
