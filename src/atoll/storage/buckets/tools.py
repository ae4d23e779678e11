"""Which program serves a bucket: s3fs where it can and is there, else rclone.

s3fs keeps modes and starts to send a file before it is closed; rclone speaks to more servers.
"""

from typing import Final

from atoll.errors import RuntimeNotAvailableError
from atoll.host import process
from atoll.storage.buckets.options import LOCAL, Source

S3FS: Final = "s3fs"
RCLONE: Final = "rclone"

CONFINING: Final = ("bwrap", "setpriv", "prlimit", "nsenter", "fusermount3")
"""What every client is started with."""

PACKAGES: Final = "bubblewrap util-linux fuse3"


def serving(source: Source) -> str:
    """Return the program that serves *source*.

    Raises:
        RuntimeNotAvailableError: it, or one it is started with, is missing; names the packages.
    """
    fit = (RCLONE,) if source.provider in {"azure", LOCAL} else (S3FS, RCLONE)
    found = next((tool for tool in fit if process.find(tool)), None)
    missing = [tool for tool in CONFINING if process.find(tool) is None]
    missing += [] if found else [fit[0]]
    if found is None or missing:
        raise RuntimeNotAvailableError(
            f"this host lacks {', '.join(missing)}",
            context={"missing": missing},
            suggestion=f"apt-get install {fit[0]} {PACKAGES}",
        )
    return found
