"""Writing one file from a streamed body.

The order is: is the target writable, then the whole body into a spool, then the change. A body
that breaks off, a full disk or a cancelled call therefore leaves the old file as it was.
"""

from typing import Any

from atoll import errors
from atoll.agent.files import infos, pathnames, spools
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Stream


def write_file(stream: Stream, fields: Fields) -> dict[str, Any]:
    """Write the body to ``path``; with ``append`` to its end. Missing parents are made."""
    path, mode, append = fields.path(), fields.mode(), fields.flag("append")
    if fields.text("path").endswith("/"):
        raise errors.IsDirectoryError(
            f"a file cannot be named like a directory: {fields.text('path')}",
            context={"path": fields.text("path")},
        )
    with pathnames.target(path, make=True) as place:
        existing = place.stat()
        if existing is not None:
            spools.check_writable(place, existing)
        with spools.Spool(place, existing, mode) as spool:
            for data in stream.body():
                spool.write(data)
            if append:
                spool.append()
            else:
                spool.replace()
            return {
                "path": pathnames.to_text(path),
                "size": spool.size,
                "timestamp": infos.now(),
            }
