"""btrfs as ioctls: subvolumes, and quota groups that limit them.

A subvolume is made together with its limit in one transaction, so none ever exists without. All
are members of one parent group, whose limit is what the store as a whole may take.

Cost of full quota groups, measured with 200 subvolumes of 10 snapshots each: snapshot 2.8 ms
instead of 2.2 ms, commit of 200 x 100 small files 0.66 s instead of 0.25 s. With simple quotas the
commit took 0.49 s; they came with kernel 6.7, so the kernels of stable distributions lack them, and
they do not credit deleted inherited files. Throughput differed by less than its noise.
"""

import array
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SUPER_MAGIC = 0x9123683E
FIRST_FREE_ID = 256
"""Inode number of every subvolume's top directory, and the lowest id of a subvolume."""

STORE_GROUP = 1 << 48 | 0x41746F6C
"""Quota group of level 1: the sum of all layers. The number is ours ("Atol") on a shared btrfs."""

_MAGIC = 0x94
_NAME_V1 = struct.Struct("=q4088s")
_NAME_V2 = struct.Struct("=qQQQQQQ4040s")
_INHERIT = struct.Struct("=4Q5QQ")
_LIMIT = struct.Struct("=6Q")
_PAIR = struct.Struct("=2Q")
_LOOKUP = struct.Struct("=2Q4080s")

_SUBVOL_RDONLY = 1 << 1
_QGROUP_INHERIT = 1 << 2
_SET_LIMITS = 1
_LIMIT_REFERENCED = 1
_QUOTA_ENABLE = 1


def _request(direction: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | _MAGIC << 8 | number


_RESIZE = _request(1, 3, 4096)
_SYNC = _MAGIC << 8 | 8
_SNAP_DESTROY = _request(1, 15, 4096)
_INO_LOOKUP = _request(3, 18, 4096)
_SNAP_CREATE_V2 = _request(1, 23, 4096)
_SUBVOL_CREATE_V2 = _request(1, 24, 4096)
_QUOTA_CTL = _request(3, 40, 16)
_QGROUP_CREATE = _request(1, 42, 16)
_QGROUP_LIMIT = _request(2, 43, 48)


def create_subvolume(parent_fd: int, name: str, limit: int) -> None:
    """Make subvolume *name* with at most *limit* bytes, as a member of the store's group."""
    inherit = _INHERIT.pack(_SET_LIMITS, 1, 0, 0, _LIMIT_REFERENCED, limit, 0, 0, 0, STORE_GROUP)
    _create(parent_fd, _SUBVOL_CREATE_V2, name, inherit, source=0, flags=0)


def snapshot(parent_fd: int, name: str, source: Path, *, read_only: bool) -> None:
    """Make *name* a copy-on-write copy of the subvolume *source*, limited as that one is.

    What was written to *source* before the call is in it, whether on the disk or not.
    """
    inherit = _INHERIT.pack(0, 1, 0, 0, 0, 0, 0, 0, 0, STORE_GROUP)
    source_fd = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = _SUBVOL_RDONLY if read_only else 0
        _create(parent_fd, _SNAP_CREATE_V2, name, inherit, source=source_fd, flags=flags)
    finally:
        os.close(source_fd)


def _create(
    parent_fd: int, request: int, name: str, inherit: bytes, *, source: int, flags: int
) -> None:
    address, size = (kept := array.array("B", inherit)).buffer_info()
    flags |= _QGROUP_INHERIT
    arguments = _NAME_V2.pack(source, 0, flags, size, address, 0, 0, os.fsencode(name))
    fcntl.ioctl(parent_fd, request, bytearray(arguments))
    del kept  # the kernel has read it by now


def delete_subvolume(parent_fd: int, name: str) -> None:
    """Unlink subvolume *name*; its space comes back in the background."""
    fcntl.ioctl(parent_fd, _SNAP_DESTROY, bytearray(_NAME_V1.pack(0, os.fsencode(name))))


def subvolume_id(path: Path) -> int:
    """Return the id of the subvolume that holds *path*; its quota group is 0/id."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        answer = bytearray(_LOOKUP.pack(0, FIRST_FREE_ID, b""))
        fcntl.ioctl(fd, _INO_LOOKUP, answer)
        return int(_LOOKUP.unpack(answer)[0])
    finally:
        os.close(fd)


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Open the folder of subvolumes."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def delete_all(folder: Path, pattern: str) -> None:
    """Unlink the subvolumes of *folder* whose names are like *pattern*."""
    with opened(folder) as fd:
        for path in folder.glob(pattern):
            delete_subvolume(fd, path.name)


def is_subvolume(path: Path) -> bool:
    """Tell whether *path*, on a btrfs, is the top directory of a subvolume."""
    try:
        return os.lstat(path).st_ino == FIRST_FREE_ID
    except (FileNotFoundError, NotADirectoryError):
        return False


def enable_quota(fd: int) -> None:
    """Switch quota groups on and make the store's own. Does nothing the second time."""
    fcntl.ioctl(fd, _QUOTA_CTL, bytearray(_PAIR.pack(_QUOTA_ENABLE, 0)))
    with suppress(FileExistsError):
        fcntl.ioctl(fd, _QGROUP_CREATE, bytearray(_PAIR.pack(1, STORE_GROUP)))


def limit_group(fd: int, group: int, limit: int) -> None:
    """Let the quota group refer to at most *limit* bytes."""
    request = _LIMIT.pack(group, _LIMIT_REFERENCED, limit, 0, 0, 0)
    fcntl.ioctl(fd, _QGROUP_LIMIT, bytearray(request))


def remove_group(fd: int, group: int) -> None:
    """Remove the quota group of a subvolume that is gone."""
    fcntl.ioctl(fd, _QGROUP_CREATE, bytearray(_PAIR.pack(0, group)))


def resize_to_device(fd: int) -> None:
    """Grow the file system to the size of its device."""
    fcntl.ioctl(fd, _RESIZE, bytearray(_NAME_V1.pack(0, b"max")))


def sync(fd: int) -> None:
    """Commit the file system: what was counted so far is then in the groups."""
    fcntl.ioctl(fd, _SYNC)


class Sysfs:
    """What the kernel shows of one btrfs under ``/sys/fs/btrfs`` (kernel 5.9)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_device(cls, device: str) -> "Sysfs":
        """Return the entry of the file system on *device* (``/dev/loop3``).

        Raises:
            FileNotFoundError: none is mounted from it.
        """
        name = Path(device).name
        for folder in Path("/sys/fs/btrfs").glob("*-*"):
            if (folder / "devices" / name).exists():
                return cls(folder)
        raise FileNotFoundError(f"no btrfs is mounted from {device}")

    def used(self, group: int) -> int:
        """Return the bytes the quota group refers to, with those not committed yet."""
        return self._number(group, "referenced") + self._number(group, "rsv_data")

    def limit(self, group: int) -> int:
        """Return how many bytes the quota group may refer to."""
        return self._number(group, "max_referenced")

    def _number(self, group: int, name: str) -> int:
        folder = self.folder / "qgroups" / f"{group >> 48}_{group & (1 << 48) - 1}"
        return int((folder / name).read_text())

    def subvolume_groups(self) -> list[int]:
        """Return the ids of all subvolumes' groups, also of deleted subvolumes."""
        return [int(f.name[2:]) for f in (self.folder / "qgroups").glob("0_*")]

    def quota_enabled(self) -> bool:
        """Tell whether quota groups are on."""
        return (self.folder / "qgroups").is_dir()
