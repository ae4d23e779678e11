"""Mounts inside a running sandbox: where one may be, attached and taken away from outside.

Names are resolved here, in the sandbox's root but without following a single link, and become
descriptors; the process that enters the sandbox's mount namespace is given those (see `graft`).
Nothing here asks a FUSE file system anything: who serves it may never answer.
"""

import asyncio
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from atoll.errors import (
    BucketMountError,
    BucketUnmountError,
    ContainerNotReadyError,
    InvalidMountConfigError,
    SecurityError,
    from_os_error,
)
from atoll.host import linux, process
from atoll.host.mounts import MountEntry, parse_mountinfo

DETACH_TIMEOUT = 10.0
"""Seconds for taking a mount away; it takes milliseconds."""


def mounts_of(pid: int) -> list[MountEntry]:
    """Return the mounts that process *pid* sees, at the paths it sees them at.

    Raises:
        ContainerNotReadyError: there is no such process any more; so do all others here.
    """
    try:
        return parse_mountinfo(Path(f"/proc/{pid}/mountinfo").read_bytes())
    except OSError as error:
        raise _ended() from error


def refuse_covered(path: str, mounts: Sequence[MountEntry]) -> None:
    """Refuse a path at, above or below mounts that it must not touch. Pure.

    Raises:
        InvalidMountConfigError: something is mounted there.
    """
    wanted = Path(path)
    for entry in mounts:
        if entry.target == wanted or wanted in entry.target.parents:
            raise _refused(path, f"{entry.target} is a mount already")
        if entry.target in wanted.parents and entry.fstype.startswith("fuse"):
            raise _refused(path, f"{path} lies in the mount {entry.target}")


def check(pid: int, path: str) -> None:
    """Make sure that *path* may become a mount: it is missing, or an empty folder. Blocking.

    Raises:
        InvalidMountConfigError: something is there.
        SecurityError: a link is on the way.
    """
    refuse_covered(path, mounts_of(pid))
    with _root(pid) as root:
        for place in (PurePosixPath(path), *PurePosixPath(path).parents):
            fd = _opened(root, str(place))
            if fd is None:
                continue
            try:
                if str(place) == path:
                    _refuse_used(fd, path)
            finally:
                os.close(fd)
            return


async def attach(pid: int, path: str, mount: int, timeout: float) -> None:
    """Attach a detached mount at the empty folder *path* of a sandbox.

    Args:
        pid: a process of the sandbox.
        path: absolute and normal, as seen there.
        mount: descriptor of the mount.
        timeout: seconds for whoever serves it to answer.

    Raises:
        InvalidMountConfigError: something is there.
        SecurityError: a link is on the way.
        BucketMountError: it was not attached.
        TimeoutError: who serves it does not answer.
    """
    target, namespace = await asyncio.to_thread(_places, pid, path)
    try:
        done = await _run(timeout, (mount, target, namespace), "attach", mount, target, namespace)
    finally:
        os.close(target)
        os.close(namespace)
    if done.code:
        raise BucketMountError(f"{path} could not be mounted: {done.message}")


def _places(pid: int, path: str) -> tuple[int, int]:
    refuse_covered(path, mounts_of(pid))
    with _root(pid) as root:
        target = _opened(root, path)
    if target is None:
        raise _refused(path, f"there is no folder {path}")
    try:
        _refuse_used(target, path)
        return target, _namespace(pid)
    except BaseException:
        os.close(target)
        raise


async def detach(pid: int, name: str, *, force: bool = False) -> bool:
    """Take the mount whose source is *name* away from a sandbox; return whether there was one.

    Args:
        pid: a process of the sandbox.
        name: as given when the file system was made.
        force: also when it is in use: whoever uses it gets errors.

    Raises:
        BucketUnmountError: it is in use; nothing was changed.
    """
    entry = next((m for m in mounts_of(pid) if m.source == name), None)
    if entry is None:
        return False
    with _root(pid) as root:
        parent = await asyncio.to_thread(_opened, root, str(entry.target.parent))
    if parent is None:
        raise BucketUnmountError(f"the folder above {entry.target} is gone")
    namespace = _namespace(pid)
    flags = linux.MNT_DETACH if force else 0
    try:
        done = await _run(
            DETACH_TIMEOUT, (parent, namespace), "detach", parent, entry.target.name, namespace, flags
        )  # fmt: skip
    finally:
        os.close(parent)
        os.close(namespace)
    if done.code:
        raise _not_unmounted(entry.target, done.message)
    return True


def _not_unmounted(target: Path, message: str) -> BucketUnmountError:
    number, _, text = message.partition(" ")
    busy = number == str(errno.EBUSY)
    return BucketUnmountError(
        f"{target} is in use" if busy else f"{target} could not be unmounted: {text}",
        context={"path": str(target), "reason": "busy" if busy else "failed"},
        suggestion="end the processes that have files or their folder in it" if busy else None,
    )


async def _run(timeout: float, descriptors: Sequence[int], *arguments: object) -> process.Completed:
    argv = [sys.executable, "-I", "-m", "atoll.host.graft", *map(str, arguments)]
    return await process.run(argv, timeout=timeout, pass_fds=descriptors)


@contextmanager
def _root(pid: int) -> Iterator[int]:
    try:
        fd = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _ended() from error
    try:
        yield fd
    finally:
        os.close(fd)


def _namespace(pid: int) -> int:
    try:
        return os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _ended() from error


def _ended() -> ContainerNotReadyError:
    return ContainerNotReadyError("the sandbox has ended", retry_after=0.1)


def _opened(root: int, path: str) -> int | None:
    """Return an O_PATH descriptor; None when it is missing."""
    try:
        return linux.open_in_root(root, path, links=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SecurityError(
                f"a link is on the way to {path}", context={"path": path}
            ) from error
        raise from_os_error(error, path) from error


def _refuse_used(fd: int, path: str) -> None:
    try:
        inner = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    except NotADirectoryError as error:
        raise _refused(path, f"{path} is no folder") from error
    try:
        with os.scandir(inner) as entries:
            if next(entries, None):
                raise _refused(path, f"{path} is not empty: its files would be hidden")
    finally:
        os.close(inner)


def _refused(path: str, why: str) -> InvalidMountConfigError:
    return InvalidMountConfigError(why, context={"path": path})
