"""What root inside may have left in its layer so that no start works again: moved aside.

Nothing runs in the sandbox while this does, and nothing is lost: what cannot be used is renamed in
its own directory. Names are opened by `linux.open_in_root`, so a link leads nowhere but into the
sandbox's own root, and nothing is ever read.
"""

import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from atoll.host import linux

READ_BY_RUNTIMES: Final = ("/etc/passwd", "/etc/group")
"""runc 1.1.5 reads both inside, whole, also for a user given by number and with HOME set: a pipe
there held the start until its time was over, a large file took the agent's memory."""

LARGEST: Final = 1 << 20
"""Bytes of such a file; one user a line, that is some 15,000 users."""

SUFFIX: Final = ".atoll-unusable"
SYSTEM: Final = ("dev", "proc", "sys")

Fits = Callable[[os.stat_result], bool]


def clear(rootfs: Path, targets: Mapping[str, bool]) -> None:
    """Make *rootfs* startable.

    Args:
        rootfs: mounted, of a sandbox that does not run.
        targets: what will be mounted where: absolute path inside → whether it is a directory.
    """
    with ExitStack() as opened:
        top = os.open(rootfs, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        opened.callback(os.close, top)
        _clear_system(top)
        for path in READ_BY_RUNTIMES:
            _clear_path(top, rootfs, path, _is_small_file)
        for path, is_directory in targets.items():
            if PurePosixPath(path).parts[1:2] not in [(name,) for name in SYSTEM]:
                _clear_path(top, rootfs, path, _is_directory if is_directory else _is_file)


def _clear_system(top: int) -> None:
    """Remove links and files where the system's own mounts go.

    A link at /dev would be followed on the host: runc 1.1.5 fills it before it changes the root
    (seen: its links appeared in a directory of the host).
    """
    for name in SYSTEM:
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                os.unlink(name, dir_fd=top)


def _clear_path(top: int, rootfs: Path, path: str, fits: Fits) -> None:
    """Move the first component of *path* aside that cannot be used; what is missing is made later."""
    with ExitStack() as opened:
        above = top
        for prefix, wanted in _prefixes(path, fits):
            found = _open(top, prefix)
            if found is not None:
                opened.callback(os.close, found)
                if wanted(os.fstat(found)) and not _below_system(found, rootfs):
                    above = found
                    continue
            _move_aside(prefix.name, above)
            return


def _prefixes(path: str, fits: Fits) -> Iterator[tuple[PurePosixPath, Fits]]:
    whole = PurePosixPath(path)
    for parent in list(reversed(whole.parents))[1:]:
        yield parent, _is_directory
    yield whole, fits


def _open(top: int, path: PurePosixPath) -> int | None:
    try:
        return linux.open_in_root(top, path)
    except OSError:  # missing, a link to nowhere, in a circle, or through a file
        return None


def _below_system(found: int, rootfs: Path) -> bool:
    """Whether something else will be there once the system's own file systems are mounted."""
    try:
        inside = Path(f"/proc/self/fd/{found}").readlink().relative_to(rootfs.resolve())
    except (OSError, ValueError):  # a path too long for a name: links led there
        return True
    return inside.parts[:1] in [(name,) for name in SYSTEM]


def _move_aside(name: str, directory: int) -> None:
    aside = f"{name}{SUFFIX}"
    with suppress(FileNotFoundError):
        os.lstat(name, dir_fd=directory)
        with suppress(FileNotFoundError):
            os.lstat(aside, dir_fd=directory)
            aside += f".{secrets.token_hex(4)}"
        os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)


def _is_directory(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode)


def _is_file(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode)


def _is_small_file(found: os.stat_result) -> bool:
    return _is_file(found) and found.st_size <= LARGEST
