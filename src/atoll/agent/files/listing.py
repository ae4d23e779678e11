"""Listing a directory, one page at a time.

A page begins behind the path that its cursor names, whether that still exists or not, so entries
that come and go between pages neither repeat nor hide others.
"""

from typing import Any, Final

from atoll.agent.files import infos, pathnames, walking
from atoll.agent.files.requests import Fields
from atoll.agent.files.rooms import Room
from atoll.agent.files.streams import Stream

MAX_PAGE: Final = 10_000

_ENTRY_BYTES: Final = 350


def list_files(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Return a page of the entries of ``path``, links as themselves.

    Without ``include_hidden``, names that begin with a dot are left out, and all below them.
    """
    path = fields.path()
    limit = fields.integer("limit", 1000, low=1, high=MAX_PAGE)
    cursor = pathnames.to_bytes(fields.optional_text("cursor") or "")
    hidden = fields.flag("include_hidden")
    with pathnames.blame(path), walking.opened(path) as top:
        items = walking.walk(
            top,
            accept=None if hidden else _is_visible,
            recursive=fields.flag("recursive"),
            after=cursor.split(b"/") if cursor else (),
            batch=min(limit + 1, walking.BATCH),
        )
        return _page(stream, items, path, limit)


def _is_visible(name: bytes, _relative: bytes, _is_directory: bool) -> bool:
    return not name.startswith(b".")


def _page(stream: Stream, items: walking.Items, path: bytes, limit: int) -> dict[str, Any]:
    describer = infos.Describer()
    files: list[dict[str, Any]] = []
    room, last = Room(limit, overhead=_ENTRY_BYTES), b""
    for item in items:
        stream.check()
        if room.is_full:
            cursor: str | None = pathnames.to_text(last)
            break
        last = item.relative
        whole = pathnames.join(path, item.relative)
        try:
            entry = infos.describe_entry(describer, item.directory, item.name, whole, item.relative)
        except FileNotFoundError:
            continue
        files.append(entry)
        room.take(
            entry["name"], entry["absolutePath"], entry["relativePath"], entry["target"] or ""
        )
    else:
        cursor = None
    return {
        "files": files,
        "path": pathnames.to_text(path),
        "count": len(files),
        "cursor": cursor,
        "timestamp": infos.now(),
    }
