"""A disk that keeps what was synced and nothing else: what a power cut leaves of a folder.

Names and contents reach it by fsync and syncfs of this process alone; what the kernel or another process
writes by itself does not count. A rename may reach it at once, ahead of all else: so what a cut right
after each one leaves is kept too.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atoll.host import linux

Tree = dict[str, bytes | None]
"""What a cut leaves: path below the folder → content; None: a directory."""


class Disk:
    """Of one folder; made by `watched`."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._files: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self.cuts: list[Tree] = []
        self.write_all()

    def write(self, fd: int) -> None:
        """What fsync does."""
        self._write(Path(f"/proc/self/fd/{fd}"), os.fstat(fd))

    def write_all(self) -> None:
        """What syncfs does."""
        for folder, _, files in os.walk(self._top):
            for path in (Path(folder), *(Path(folder, name) for name in files)):
                self._write(path, path.lstat())

    def _write(self, path: Path, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = _names(path)
        elif stat.S_ISREG(found.st_mode):
            self._files[found.st_ino] = path.read_bytes()

    def renamed(self, *folders: Path) -> None:
        """Keep what a cut leaves if this rename is on the disk, as no sync has asked for."""
        before = dict(self._names)
        for folder in folders:
            self._names[folder.stat().st_ino] = _names(folder)
        self.cuts.append(self.left())
        self._names = before

    def left(self) -> Tree:
        """Return what a cut now leaves."""
        return dict(self._below("", self._top.stat().st_ino))

    def _below(self, path: str, inode: int) -> Iterator[tuple[str, bytes | None]]:
        for name, (child, is_folder) in self._names.get(inode, {}).items():
            yield f"{path}{name}", None if is_folder else self._files.get(child, b"")
            if is_folder:
                yield from self._below(f"{path}{name}/", child)


def _names(folder: Path) -> dict[str, tuple[int, bool]]:
    with os.scandir(folder) as entries:
        return {one.name: (one.inode(), one.is_dir(follow_symlinks=False)) for one in entries}


@contextmanager
def watched(top: Path) -> Iterator[Disk]:
    """Yield the disk of a folder, on which all is as it is now; from then on by syncs only."""
    disk, fsync, syncfs, rename = Disk(top), os.fsync, linux.syncfs, Path.rename

    def renamed(self: Path, target: Path) -> Path:
        done = rename(self, target)
        disk.renamed(self.parent, target.parent)
        return done

    def synced(fd: int) -> None:
        fsync(fd)
        disk.write(fd)

    def all_synced(fd: int) -> None:
        syncfs(fd)
        disk.write_all()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", synced)
        patch.setattr(linux, "syncfs", all_synced)
        patch.setattr(Path, "rename", renamed)
        yield disk
