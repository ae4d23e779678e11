"""Backing up a directory, and putting it back as a whole.

A backup is a tar stream of a directory: what the user can read of it, with owners and modes (but
set-id and sticky bits), hard links, links as links, extended attributes
that users set, access lists, holes as zeros; not what is mounted in it. Putting it back makes a new
directory beside the target; only when the archive is complete do the two change places, in one
step, and the old one is deleted.

The path is taken as it is written: no component of it may be a link, so that whoever makes the
target a link elsewhere gets a refusal and not other files.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from atoll import errors
from atoll.agent.files import ignores, mounted, pathnames, unpacking, walking
from atoll.agent.files.packing import Packer
from atoll.agent.files.pathnames import Place, to_text
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Stream
from atoll.wire.frames import Kind


def backup(stream: Stream, fields: Fields) -> None:
    """Answer with `Archive`, the bytes of a tar archive, and END with what is in it."""
    path = fields.path()
    limit = fields.optional_integer("max_content")
    excludes = ignores.parse("\n".join(fields.texts("excludes") or ()))
    with _strictly(path, make=False) as place, pathnames.blame(path):
        existing = place.require()
        unpacking.refuse_no_directory(place, existing)
        top = walking.open_directory(place.name, place.directory)
        try:
            kept = _Kept(top, excludes, gitignore=fields.flag("gitignore"))
            packer = Packer(stream, path, hard_links=True, limit=limit, keep_attributes=True)
            for item in walking.walk(top, accept=kept):
                packer.add(item.directory, item.name, item.relative)
            packer.finish()
        finally:
            os.close(top)


def restore(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Unpack the body into a new directory, which then takes the place of ``path``."""
    path = fields.path()
    with _replacing(path) as stage:
        unpacker = unpacking.Unpacker(stage.directory, outside_links=True, keep_owner=True)
        try:
            unpacker.unpack(stream)
        finally:
            unpacker.close()
    return {"path": to_text(path), "files": unpacker.files, "size": unpacker.size}


def place(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Tell of a new directory that the engine fills from outside; then it takes the place of ``path``.

    Raises:
        ValidationFailedError: what was made in it cannot be seen here.
    """
    path = fields.path()
    with _replacing(path) as stage:
        stream.send_json(Kind.REPLY, {"path": to_text(path), "stage": to_text(stage.name)})
        told = json.loads(b"".join(map(bytes, stream.body())))
        if _names(stage.directory) != told["entries"]:
            raise errors.ValidationFailedError("what was made from outside is not seen inside")
    return {"path": to_text(path)}


def _names(directory: int) -> int:
    """Count by a new descriptor: btrfs shows an old one no name that came after it."""
    here = walking.open_directory(b".", directory)
    try:
        return len(os.listdir(here))
    finally:
        os.close(here)


@contextmanager
def _replacing(path: bytes) -> Iterator[unpacking.Stage]:
    """Have a new directory that takes the place of *path* when the block has ended."""
    with _strictly(path, make=True) as place:
        existing = place.stat()
        unpacking.refuse_no_directory(place, existing)
        if existing is not None:
            _refuse_mounts(place)
        with unpacking.staged(place, inside=False) as stage:
            stage.plain()
            yield stage
            with pathnames.blame(path):
                if existing is not None or not _became(stage, place):
                    stage.take_over(place, existing or place.require())


def _became(stage: unpacking.Stage, place: Place) -> bool:
    """Take a name that was free; False: it is another directory's by now, of a restore beside this."""
    try:
        stage.become(place)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        unpacking.refuse_no_directory(place, place.require())
        _refuse_mounts(place)
        return False
    return True


def _refuse_mounts(place: Place) -> None:
    """The old directory is deleted, which must not be what is mounted in it."""
    target = walking.open_directory(place.name, place.directory)
    try:
        inside = mounted.below(target)
    finally:
        os.close(target)
    if inside:
        path = f"{to_text(place.path)}/{to_text(min(inside))}"
        raise errors.ResourceBusyError(
            f"something is mounted at {path}",
            context={"path": path},
            suggestion="unmount it first, or restore to another directory",
        )


class _Kept:
    """Which entries are backed up."""

    def __init__(self, top: int, excludes: list[ignores.Rule], *, gitignore: bool) -> None:
        self._excludes = excludes
        self._mounted = mounted.below(top) or set()
        self._ignored = ignores.Ignored(top) if gitignore else None

    def __call__(self, _name: bytes, relative: bytes, is_directory: bool) -> bool:  # an `Accept`
        if relative in self._mounted:
            return False
        verdict = ignores.decide(self._excludes, to_text(relative), is_directory=is_directory)
        if verdict is not None:
            return not verdict
        return not (self._ignored and self._ignored(relative, is_directory=is_directory))


@contextmanager
def _strictly(path: bytes, *, make: bool) -> Iterator[Place]:
    """Hold the directory of *path*, reached through no link.

    Args:
        make: make missing parents.

    Raises:
        SecurityError: a component is a link.
    """
    *parents, name = path.strip(b"/").split(b"/")
    here = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with pathnames.blame(path):
            for part in parents:
                below = _enter(here, part, path, make=make)
                os.close(here)
                here = below
        yield Place(here, name, path)
    finally:
        os.close(here)


def _enter(here: int, part: bytes, path: bytes, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(part, 0o755, dir_fd=here)
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(part, flags, dir_fd=here)
    except NotADirectoryError as error:
        if stat.S_ISLNK(os.stat(part, dir_fd=here, follow_symlinks=False).st_mode):
            raise errors.SecurityError(
                f"{to_text(part)!r} in {to_text(path)} is a link",
                context={"path": to_text(path)},
                suggestion="name the directory itself",
            ) from error
        raise
