"""Renaming and moving: one rename where the kernel can, else copy and delete.

Both names of the operation do the same, because a caller cannot know where a rename ends: a
directory that came with the image cannot be renamed on an overlay at all (EXDEV), no more than a
file from one mount to another. The copy has everything `copying` keeps, with the owner, and is
complete before the source is touched.
"""

import errno
import os
import stat
from typing import Any, Final

from atoll import errors
from atoll.agent.files import copying, pathnames
from atoll.agent.files.pathnames import Place, to_text
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Stream

_ABOUT_TARGET: Final = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST})


def rename_file(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Give ``source`` the name ``target``; a file that is there is replaced, at once."""
    source, target = fields.path("source"), fields.path("target")
    with pathnames.entry(source) as origin:
        found = origin.require()
        with pathnames.entry(target) as place:
            try:
                _move(stream, origin, place, found)
            except errors.SandboxError:
                raise
            except OSError as error:
                raise _typed(error, origin, place) from error
    return {"success": True}


move_file = rename_file


def _move(stream: Stream, origin: Place, place: Place, found: os.stat_result) -> None:
    try:
        os.rename(origin.name, place.name, src_dir_fd=origin.directory, dst_dir_fd=place.directory)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _refuse_other_type(place, found)
        copying.Copy(stream, keep_owner=True).aside(origin, place)
        copying.remove(origin.directory, origin.name)
    origin.sync()
    place.sync()


def _refuse_other_type(place: Place, found: os.stat_result) -> None:
    """Say before copying what the rename would say after it."""
    existing = place.stat()
    if existing is None:
        return
    was, will = stat.S_ISDIR(existing.st_mode), stat.S_ISDIR(found.st_mode)
    if was and not will:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if will and not was:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def _typed(error: OSError, origin: Place, place: Place) -> errors.SandboxError:
    about = place.path if error.errno in _ABOUT_TARGET else origin.path
    typed = errors.from_os_error(error, to_text(about))
    typed.context |= {"source": to_text(origin.path), "target": to_text(place.path)}
    if error.errno == errno.EISDIR:
        typed.suggestion = "the target is the new name itself, not a directory to move into"
    elif error.errno == errno.EINVAL:
        typed.suggestion = "a directory cannot be moved into itself"
    return typed
