"""Attaching a folder of the host inside a mounted root, before anything in that root runs.

The root may be full of links that its last inhabitant left. The way to the target is walked one
component at a time by descriptors, no link is followed and what is missing is made, so nothing
outside of the root is ever touched.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from atoll.errors import InvalidMountConfigError, SandboxError, SecurityError, from_os_error
from atoll.host import linux

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_INERT = linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV


def attach(
    root: Path, target: str, folder: Path, *, userns: int, owner: int, read_only: bool
) -> None:
    """Mount *folder* at *target* in *root*, with the ids of that root.

    Args:
        root: a mounted root in which no process runs.
        target: an absolute path inside; what is missing of it is made.
        folder: on the host; ids on disk are the sandbox's own.
        userns: descriptor of the user namespace that maps ids.
        owner: host id of root inside, for directories that are made.
        read_only: nobody inside can write there, or remount it.

    Raises:
        SecurityError: a part of *target* is a link.
        InvalidMountConfigError: a part of it is there and no directory.
    """
    clone = linux.open_tree(folder)
    try:
        attributes = _INERT | (linux.MOUNT_ATTR_RDONLY if read_only else 0)
        linux.mount_setattr(clone, attr_set=attributes | linux.MOUNT_ATTR_IDMAP, userns_fd=userns)
        with linux.files_owned_by(owner, owner), _opened(root, target) as place:
            # A mount follows no link at the end of a path, but those before it.
            linux.move_mount(clone, f"/proc/self/fd/{place}/.")
    finally:
        os.close(clone)


@contextmanager
def _opened(root: Path, target: str) -> Iterator[int]:
    current = os.open(root, _DIRECTORY)
    try:
        for part in Path(target).parts[1:]:
            child = _entered(current, part, target)
            os.close(current)
            current = child
        yield current
    finally:
        os.close(current)


def _entered(parent: int, name: str, target: str) -> int:
    try:
        with suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError as error:
        raise _refusal(error, parent, name, target) from error


def _refusal(error: OSError, parent: int, name: str, target: str) -> SandboxError:
    if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
        return from_os_error(error, target)
    context = {"path": target, "component": name}
    if Path(f"/proc/self/fd/{parent}/{name}").is_symlink():
        return SecurityError(
            f"nothing is mounted at {target}: {name!r} in it is a link",
            context=context,
            suggestion="give the path without links, or remove the link",
        )
    return InvalidMountConfigError(
        f"nothing can be mounted at {target}: {name!r} in it is no directory", context=context
    )
