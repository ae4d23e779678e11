"""Fills a volume that outlives a Pod with what the image has at the path where it will be mounted.

Runs as an init container of the sandbox's own image, until a start has succeeded: what is there is
written over, so that a copy that was cut short is made whole. Owners, modes and times are kept.
"""

import os
import shutil
import stat
from pathlib import Path


def fill(source: str, target: str) -> None:
    """Copy what is in the directory *source* into the directory *target*; links are not followed."""
    if os.path.isdir(source) and not os.path.islink(source):
        _copy(Path(source), Path(target))


def _copy(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            here, there = Path(entry.path), target / entry.name
            if entry.is_dir(follow_symlinks=False):
                _copy(here, there)
            elif entry.is_symlink():
                there.unlink(missing_ok=True)
                there.symlink_to(here.readlink())
                _own(here, there)
            elif entry.is_file(follow_symlinks=False):
                shutil.copyfile(here, there)
                _own(here, there)
    _own(source, target)


def _own(source: Path, target: Path) -> None:
    status = source.lstat()
    os.lchown(target, status.st_uid, status.st_gid)
    if not stat.S_ISLNK(status.st_mode):
        target.chmod(stat.S_IMODE(status.st_mode))
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
