"""Trees kept beside the layers, to be shared with layers: read-only subvolumes with a limit.

A tree is filled in a draft that goes with the engine. The read-only copy of it, which is made in one
step and on the disk when the call returns, is what says that it is complete. What it is, but for the
contents of its files, is compared at each use; contents the kernel compares as they are read.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from atoll.errors import FilesystemError
from atoll.host import linux
from atoll.storage import btrfs, sharing
from atoll.storage.btrfs_layers import TREES, UNFINISHED, BtrfsLayers
from atoll.storage.refusals import check_id

_FILES, _ACCOUNT = "files", "account.json"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree is of, and what is in it."""

    sha256: str
    files: int
    size: int
    entries: int
    summary: str = ""


class BtrfsTrees:
    """One read-only subvolume a tree. All calls block.

    Args:
        layers: the store they are in.
    """

    def __init__(self, layers: BtrfsLayers) -> None:
        self._layers = layers
        self.folder = layers.folder / TREES

    def sweep(self) -> None:
        """Remove what an engine that was killed had not finished."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        btrfs.delete_all(self.folder, f"{UNFINISHED}*")

    def begin(self, tree_id: str, limit: int) -> Path:
        """Return an empty folder for the files of a tree, of at most *limit* bytes."""
        check_id(tree_id)
        draft = self.folder / (UNFINISHED + tree_id)
        with btrfs.opened(self.folder) as fd:
            self._discard(fd, draft.name)
            self._discard(fd, tree_id)
            btrfs.create_subvolume(fd, draft.name, limit)
        (draft / _FILES).mkdir()
        return draft / _FILES

    def publish(self, tree_id: str, account: Account) -> None:
        """Have a tree appear, complete and on the disk, as it was begun and filled.

        Raises:
            FilesystemError: it cannot be shared.
            OSError: it does not fit.
        """
        draft = self.folder / (UNFINISHED + tree_id)
        with btrfs.opened(self.folder) as fd:
            with _folder(draft / _FILES) as files:
                told = msgspec.structs.replace(account, summary=sharing.summary(files))
            (draft / _ACCOUNT).write_bytes(msgspec.json.encode(told))
            linux.syncfs(fd)  # contents first: what does not fit is told here
            btrfs.snapshot(fd, tree_id, draft, read_only=True)

    def abandon(self, tree_id: str) -> None:
        """Remove what was begun. Idempotent."""
        with btrfs.opened(self.folder) as fd:
            self._discard(fd, UNFINISHED + tree_id)

    def account(self, tree_id: str) -> Account | None:
        """Return what a tree is; None: there is none that is whole."""
        check_id(tree_id)
        try:
            return msgspec.json.decode(
                (self.folder / tree_id / _ACCOUNT).read_bytes(), type=Account
            )
        except (OSError, msgspec.MsgspecError):
            return None

    def share(self, tree_id: str, layer_id: str, path: str) -> None:
        """Fill an empty folder of a layer, whatever else is done in that layer meanwhile.

        Args:
            path: of the folder, below the top of the layer's files.

        Raises:
            FilesystemError: the tree is not what it was.
            OSError: there is no such folder, or it is full.
        """
        account = self.account(tree_id)
        if account is None:
            raise FilesystemError("the tree is damaged", context={"tree": tree_id})
        with (
            _folder(self._layers.folder / layer_id / "upper") as upper,
            _closing(linux.open_below(upper, path, _DIRECTORY)) as target,
            _folder(self.folder / tree_id / _FILES) as source,
        ):
            if sharing.share(source, target) != account.summary:
                raise FilesystemError("the tree is damaged", context={"tree": tree_id})

    def delete(self, tree_id: str) -> None:
        """Remove a tree; who shared it keeps what he has. Idempotent."""
        check_id(tree_id)
        with btrfs.opened(self.folder) as fd:
            self._discard(fd, tree_id)

    def usage(self, tree_id: str) -> int:
        """Return the bytes a tree refers to, shared ones included; 0: it is gone."""
        try:
            return self._layers.used(self.folder / tree_id)
        except FileNotFoundError:
            return 0

    def list(self) -> list[str]:
        """Return the ids of all trees, the oldest first."""
        found = [p for p in self.folder.glob("[!.]*") if btrfs.is_subvolume(p)]
        return [p.name for p in sorted(found, key=lambda p: p.lstat().st_ctime_ns)]

    def _discard(self, fd: int, name: str) -> None:
        if btrfs.is_subvolume(self.folder / name):
            btrfs.delete_subvolume(fd, name)


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    with _closing(os.open(path, _DIRECTORY)) as fd:
        yield fd


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)
