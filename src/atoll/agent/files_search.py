"""Finding files and directories by name."""

from typing import Any, Final

from atoll.agent import files_glob, files_path, files_walk
from atoll.agent.files_request import Fields
from atoll.agent.files_room import Room
from atoll.agent.files_stream import Stream

MAX_RESULTS: Final = 100_000


def search_files(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Return the absolute paths of all entries below ``path`` that match ``pattern``, sorted.

    Hidden ones count; links are not followed.
    """
    path, limit = fields.path(), fields.integer("limit", 10_000, low=1, high=MAX_RESULTS)
    matches = files_glob.matcher([fields.optional_text("pattern") or "*"])
    paths: list[str] = []
    room = Room(limit, overhead=1)
    with files_path.blame(path), files_walk.opened(path) as top:
        for item in files_walk.walk(top):
            stream.check()
            if not matches(item.relative):
                continue
            if room.is_full:
                return {"paths": paths, "truncated": True}
            paths.append(files_path.to_text(files_path.join(path, item.relative)))
            room.take(paths[-1])
    return {"paths": paths, "truncated": False}
