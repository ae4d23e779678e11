"""Small operations on one path: mkdir, exists, stat, set_permissions."""

import errno
import os
from typing import Any

from atoll import errors
from atoll.agent import users
from atoll.agent.files import infos, pathnames
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Stream

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def mkdir(_stream: Stream, fields: Fields) -> dict[str, Any]:
    """Make a directory; with ``recursive`` its parents too, and one that is there is fine."""
    path, mode = fields.path(), fields.mode()
    recursive = fields.flag("recursive")
    with pathnames.blame(path):
        if recursive:
            pathnames.make_directories(path)
            if not os.path.isdir(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        else:
            os.mkdir(path)
        if mode is not None:
            os.chmod(path, mode)
    return {"success": True}


def exists(_stream: Stream, fields: Fields) -> dict[str, Any]:
    """Tell whether there is something; a link counts as what it leads to."""
    path = fields.path()
    found = True
    try:
        os.stat(path)
    except OSError as error:
        if error.errno not in _ABSENT:
            raise errors.from_os_error(error, pathnames.to_text(path)) from error
        found = False
    return {"path": pathnames.to_text(path), "exists": found, "timestamp": infos.now()}


def stat(_stream: Stream, fields: Fields) -> dict[str, Any]:
    """Describe a path; a link is described itself, with its target."""
    path = fields.path()
    with pathnames.blame(path):
        return infos.describe_entry(infos.Describer(), None, path, path)


def set_permissions(_stream: Stream, fields: Fields) -> dict[str, Any]:
    """Change owner, group and mode of what a path leads to, in this order.

    The order matters: a change of owner takes the set-id bits away.
    """
    path, mode = fields.path(), fields.mode()
    uid = _owner(fields)
    gid = _group(fields)
    with pathnames.blame(path):
        if (uid, gid) != (-1, -1):
            os.chown(path, uid, gid)
        if mode is not None:
            os.chmod(path, mode)
        return infos.Describer().describe(path, os.stat(path))


def _owner(fields: Fields) -> int:
    owner = fields.name_or_number("owner")
    return -1 if owner is None else users.read(owner).uid


def _group(fields: Fields) -> int:
    group = fields.name_or_number("group")
    return -1 if group is None else users.read(f"0:{group}").gid
