"""Where the store keeps what, and what it writes down about an image.

::

    cache_dir/images/           0700: images hold set-user-id programs
      layers/<diff id>/         a layer as an overlay lower directory, ids as in the image
      records/<digest>.json     an image: layers and configuration
      references/<name>         the digest a reference means, name percent-encoded
      uses/<digest>/<holder>    link to the state directory of an engine that needs the image
      build/                    storage of the Dockerfile builder
      unreachable/              images whose registry was not there lately
      tmp/                      work in progress; what is in it and not locked is garbage
      lock                      held by whoever changes any of this
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from atoll.host import durable, trees
from atoll.images.config import ImageConfig


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is ready to be mounted."""

    reference: str  # as asked for; in full form from what made or pulled it
    digest: str  # sha256:…
    layers: tuple[Path, ...]  # top first, as overlay wants them
    config: ImageConfig


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored about an image. Ids are hexadecimal, layers from the bottom up."""

    digest: str
    layers: tuple[str, ...]
    document: dict[str, Any]
    created_at: float  # seconds since the epoch, when it was stored here
    sizes: tuple[int, ...]  # of the layers' archives, in bytes
    recipe: str = ""  # of a base image


class Places(msgspec.Struct, frozen=True):
    """The paths above."""

    root: Path

    @property
    def lock(self) -> Path:
        """The lock of all changes."""
        return self.root / "lock"

    @property
    def build(self) -> Path:
        """Storage of the builder."""
        return self.root / "build"

    @property
    def unreachable(self) -> Path:
        """Directory of registries that were not there."""
        return self.root / "unreachable"

    @property
    def references(self) -> Path:
        """Directory of references."""
        return self.root / "references"

    @property
    def records(self) -> Path:
        """Directory of records."""
        return self.root / "records"

    @property
    def layers(self) -> Path:
        """Directory of layers."""
        return self.root / "layers"

    def layer(self, diff_id: str) -> Path:
        """Where a layer is or will be."""
        return self.layers / diff_id

    def record(self, digest: str) -> Path:
        """Where an image's record is."""
        return self.records / f"{digest}.json"

    def reference(self, name: str) -> Path:
        """Where the digest of a reference (full form) is."""
        return self.references / quote(name, safe="")

    def uses(self, digest: str) -> Path:
        """Directory of an image's users."""
        return self.root / "uses" / digest

    def make(self) -> None:
        """Create what is missing."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)
        for name in ("layers", "records", "references", "uses", "tmp", "build"):
            (self.root / name).mkdir(exist_ok=True)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Lend a directory for work in progress, on the layers' file system."""
        path = Path(tempfile.mkdtemp(dir=self.root / "tmp"))
        try:
            yield path
        finally:
            with suppress(OSError):  # the next sweep tries again
                trees.remove(path)

    def leftovers(self) -> list[Path]:
        """Return what work that was killed has left."""
        return list((self.root / "tmp").iterdir())


def write_atomic(path: Path, data: bytes) -> None:
    """Replace *path* by *data*, on the disk on return; a crash before leaves the old content or the new."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    Path(name).rename(path)
    durable.sync(path.parent)
