"""Which program serves a bucket: s3fs where it can, is there and is not ruled out, else rclone.

s3fs keeps modes and starts to send a file before it is closed; rclone speaks to more servers, but not
with keys to Google's: it signs `Accept-Encoding`, which their front end changes on the way.
"""

from typing import Final

from atoll.errors import NotSupportedByRuntimeError, RuntimeNotAvailableError
from atoll.host import process
from atoll.storage.buckets.options import LOCAL, Source

S3FS: Final = "s3fs"
RCLONE: Final = "rclone"

CONFINING: Final = ("bwrap", "setpriv", "prlimit", "nsenter", "fusermount3")
"""What every client is started with."""

PACKAGES: Final = "bubblewrap util-linux fuse3"


def serving(source: Source, s3_client: str = "auto") -> str:
    """Return the program that serves *source*.

    Args:
        source: the bucket.
        s3_client: the setting of this name.

    Raises:
        NotSupportedByRuntimeError: the setting rules out the only one that can.
        RuntimeNotAvailableError: it, or one it is started with, is missing; names the packages.
    """
    fit = _fit(source.provider, s3_client)
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


def _fit(provider: str, s3_client: str) -> tuple[str, ...]:
    """Return the programs that can serve a provider's buckets, the better one first."""
    if provider in {"azure", LOCAL}:
        return (RCLONE,)
    if provider != "gcs":
        return (S3FS, RCLONE) if s3_client == "auto" else (s3_client,)
    if s3_client == RCLONE:
        raise NotSupportedByRuntimeError(
            "buckets of Google Cloud Storage are served by s3fs only, which this engine must not use",
            context={"setting": "storage.s3_client"},
            suggestion="set storage.s3_client to auto",
        )
    return (S3FS,)
