"""Finding files and directories by name."""

from typing import Any, Final

from atoll.agent.files import globs, pathnames, walking
from atoll.agent.files.requests import Fields
from atoll.agent.files.rooms import Room
from atoll.agent.files.streams import Stream

MAX_RESULTS: Final = 100_000


def search_files(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Return the absolute paths of all entries below ``path`` that match ``pattern``, sorted.

    Hidden ones count; links are not followed.
    """
    path, limit = fields.path(), fields.integer("limit", 10_000, low=1, high=MAX_RESULTS)
    matches = globs.matcher([fields.optional_text("pattern") or "*"])
    paths: list[str] = []
    room = Room(limit, overhead=1)
    with pathnames.blame(path), walking.opened(path) as top:
        for item in walking.walk(top):
            stream.check()
            if not matches(item.relative):
                continue
            if room.is_full:
                return {"paths": paths, "truncated": True}
            paths.append(pathnames.to_text(pathnames.join(path, item.relative)))
            room.take(paths[-1])
    return {"paths": paths, "truncated": False}
