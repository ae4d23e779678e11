"""Unpacking a layer archive into an overlay lower directory.

Deletions become what overlay understands: ``.wh.name`` a character device 0:0, ``.wh..wh..opq``
the attribute ``trusted.overlay.opaque`` (``user.…`` without root). Owners stay the image's own ids;
without root all belongs to this user. What else may be in an
archive is decided in `atoll.images.archive`.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple

from atoll.errors import InvalidImageError
from atoll.host import overlay
from atoll.images.archive import Bounded, Limits, Readable, Tree, fill, is_directory, refuse

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_BOOKKEEPING = ".wh..wh."
"""Other names of this form belong to a union file system of long ago and mean nothing here."""

_OVERLAY_OPAQUE = overlay.attribute("opaque")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Unpacked(NamedTuple):
    """What an archive had."""

    size: int  # bytes
    members: int


def unpack(source: Readable, target: Path, diff_id: str, limits: Limits) -> Unpacked:
    """Unpack the uncompressed tar stream *source* into the new directory *target*.

    Raises:
        InvalidImageError: the archive is malformed, hostile, over a limit, or not *diff_id*.
    """
    target.mkdir(mode=0o755)
    stream = Bounded(source, limits.size)
    members = fill(_Layer(target), stream, limits)
    if stream.hexdigest() != diff_id:
        raise InvalidImageError(
            "the layer's content is not what the image says", context={"diffId": diff_id}
        )
    return Unpacked(stream.count, members)


class _Layer(Tree):
    """A directory being filled, in which some names say what a lower layer loses."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, owners=os.geteuid() == 0)
        self._hidden: set[tuple[str, ...]] = set()

    def _place_special(self, parent: int, parents: list[str], name: str) -> bool:
        if not name.startswith(_WHITEOUT):
            return False
        if name == _OPAQUE:
            os.setxattr(parent, _OVERLAY_OPAQUE, b"y")
        elif not name.startswith(_BOOKKEEPING):
            self._hide(parent, parents, name.removeprefix(_WHITEOUT))
        return True

    def _hide(self, parent: int, parents: list[str], hidden: str) -> None:
        if hidden in {"", ".", ".."}:
            raise refuse(f"{_WHITEOUT}{hidden}", "it hides a path outside")
        # A layer may remove a name of a lower one and put its own in its place, in any order.
        self._hidden.add((*parents, hidden))
        try:
            os.mknod(hidden, stat.S_IFCHR | 0o600, os.makedev(0, 0), dir_fd=parent)
        except FileExistsError:
            if is_directory(parent, hidden):
                _make_opaque(parent, hidden)

    def _make_directory(self, parent: int, parts: tuple[str, ...]) -> None:
        super()._make_directory(parent, parts)
        if parts in self._hidden:
            _make_opaque(parent, parts[-1])


def _make_opaque(parent: int, name: str) -> None:
    directory = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        os.setxattr(directory, _OVERLAY_OPAQUE, b"y")
    finally:
        os.close(directory)
