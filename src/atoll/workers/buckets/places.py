"""Where buckets of a project are in development."""

from collections.abc import Sequence
from pathlib import Path

from atoll.errors import InvalidConfigError
from atoll.workers.wrangler import Bucket

FOLDER = Path(".atoll/buckets")
"""In the project: a folder of objects, and one of their metadata, for each bucket."""


def folders(entries: Sequence[Bucket], root: Path) -> dict[str, Path]:
    """Return binding → the folder of its objects in development, which a sandbox may mount.

    Raises:
        InvalidConfigError: a bucket's name is none.
    """
    return {entry.binding: of(root, entry) / "objects" for entry in entries}


def of(root: Path, entry: Bucket) -> Path:
    """Return the folder of one bucket; raise as `folders`."""
    place = root / FOLDER / entry.bucket_name
    if place.parent != root / FOLDER or place.name == "..":
        raise InvalidConfigError(f"{entry.bucket_name!r} is no name of a bucket")
    return place
