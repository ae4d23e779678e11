"""Replacing text in files.

All files are read before the first is written, so that a wrong path changes nothing. Each file is
then replaced as `files.writing` would; a failure in the middle tells what was done already.
"""

import os
from typing import Any, Final

from atoll import errors
from atoll.agent.files import pathnames, spools
from atoll.agent.files.reading import check_regular
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Stream

MAX_FILE: Final = 16 << 20
"""Bytes of the largest file: it is held in the agent's small memory, several times over."""


def replace_in_files(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Replace ``old`` by ``new`` in each of ``paths``; return path → number of replacements."""
    old = fields.text("old").encode("utf-8", "surrogatepass")
    new = fields.text("new").encode("utf-8", "surrogatepass")
    if not old:
        raise errors.ValidationFailedError("the text to replace is empty", context={"field": "old"})
    paths = fields.paths("paths")
    counts = {path: _count(path, old) for path in paths}
    done: dict[str, int] = {}
    try:
        for path, count in counts.items():
            stream.check_now()
            if count:
                done[pathnames.to_text(path)] = _replace(path, old, new)
    except errors.SandboxError as error:
        error.context["replaced"] = done
        raise
    return {"replaced": done}


def _count(path: bytes, old: bytes) -> int:
    with pathnames.target(path) as place:
        spools.check_writable(place, place.require())
        return _read(place).count(old)


def _replace(path: bytes, old: bytes, new: bytes) -> int:
    with pathnames.target(path) as place:
        content = _read(place)
        with spools.Spool(place, place.require()) as spool:
            spool.write(content.replace(old, new))
            spool.replace()
    return content.count(old)


def _read(place: pathnames.Place) -> bytes:
    file = place.open(os.O_RDONLY)
    try:
        found = check_regular(os.fstat(file), place.path)
        if found.st_size > MAX_FILE:
            raise errors.FileTooLargeError(
                f"{pathnames.to_text(place.path)} is over {MAX_FILE} bytes",
                context={"path": pathnames.to_text(place.path), "limit": MAX_FILE},
            )
        parts = []
        while part := os.read(file, 1 << 20):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)
