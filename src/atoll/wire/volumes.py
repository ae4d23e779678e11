"""Named volumes: files that sandboxes of a namespace have in common, and that outlive them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from atoll.wire.base import Request, Result, Whole

PACKAGE_CACHE: Final = "/var/cache/packages"
"""Where the option `package_cache` mounts its volume."""


class CreateVolume(Request, frozen=True, kw_only=True):
    """A new volume. `size` is its limit in bytes.

    `read_only`: sandboxes only read it. `shared`: several may write to it at the same time.
    `private`: each start of a sandbox writes to a copy of its own, which goes with it.
    """

    name: str
    size: Whole = 1_000_000_000
    read_only: bool = False
    shared: bool = False
    private: bool = False


class UpdateVolume(Request, frozen=True, kw_only=True):
    """A volume's new limit in bytes."""

    size: Whole


class PublishVolume(Request, frozen=True, kw_only=True):
    """The sandbox whose copy of a private volume is to be the volume's content."""

    sandbox: str


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
    private: bool = False
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


class MakeVolumeFolder(Request, frozen=True, kw_only=True):
    """A folder to make. With `parents` those on the way too, and one that is there is no error."""

    path: str
    parents: bool = True


class MoveVolumeFile(Request, frozen=True, kw_only=True):
    """A file or folder and its new path; `overwrite` replaces a file, or an empty folder."""

    path: str
    target: str
    overwrite: bool = False


class RemoveVolumeFile(Request, frozen=True, kw_only=True):
    """A file or folder to remove; with `recursive` a folder with all that is in it."""

    path: str
    recursive: bool = False


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
