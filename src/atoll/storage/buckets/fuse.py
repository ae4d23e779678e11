"""A FUSE file system that belongs to nobody yet: its mount, and the device its client answers on.

The mount is made detached, so no path of the host ever leads into a bucket; it is root's, so that
processes of every sandbox may use it, whoever serves it.
"""

import os
from pathlib import Path

from atoll.errors import RuntimeNotAvailableError
from atoll.host import linux

DEVICE = Path("/dev/fuse")


class FileSystem:
    """Descriptors of a fresh file system: `device`, on which it is served, and `mount`."""

    def __init__(self, device: int, mount: int) -> None:
        self.device = device
        self.mount = mount
        self._open = {device, mount}

    def close_device(self) -> None:
        """Leave serving it to whoever else has the device: it ends with them."""
        self._close(self.device)

    def close(self) -> None:
        """Close what is open."""
        self._close(self.device)
        self._close(self.mount)

    def _close(self, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            os.close(fd)


def made(name: str, *, read_only: bool, client: str = "s3fs") -> FileSystem:
    """Return a file system whose source is called *name* in tables of mounts.

    The kernel judges who may do what by modes, for clients that do not do so themselves.

    Raises:
        RuntimeNotAvailableError: this kernel has no FUSE.
    """
    try:
        device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise RuntimeNotAvailableError(
            f"this host has no FUSE: {DEVICE}: {error.strerror}",
            suggestion="load the kernel module fuse",
        ) from error
    try:
        return FileSystem(device, _mount(device, name, client, read_only=read_only))
    except BaseException:
        os.close(device)
        raise


def _mount(device: int, name: str, client: str, *, read_only: bool) -> int:
    context = linux.fsopen("fuse")
    try:
        settings = {"source": name, "subtype": client, "fd": str(device), "rootmode": "40000",
                    "user_id": "0", "group_id": "0"}  # fmt: skip
        for key, value in settings.items():
            linux.fsconfig(context, key, value)
        linux.fsconfig(context, "allow_other")
        if client == "rclone":
            linux.fsconfig(context, "default_permissions")
        if read_only:
            linux.fsconfig(context, "ro")
        attributes = linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV
        return linux.fsmount(context, attributes | (linux.MOUNT_ATTR_RDONLY if read_only else 0))
    finally:
        os.close(context)
