"""Records, references, layers and users of images on disk. Blocking; `store` calls it in threads.

Everything is written beside its place and renamed into it, so readers need no lock. What adds or
removes is called with the store's lock held.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from atoll.errors import ImageNotFoundError, ResourceBusyError
from atoll.host import durable, trees
from atoll.images import reference
from atoll.images.config import image_config
from atoll.images.layout import Image, Places, Record, write_atomic
from atoll.wire.sandbox import ImageInfo

SETTLE = 600.0
"""Seconds after its last `find` in which an image is not removed: a sandbox that is being made
from it has not marked its use yet."""


class Catalog:
    """What is stored under `places`."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def find(self, name: str, wanted: tuple[str, ...]) -> Image:
        """Return the first stored image of *wanted* (references in full form, or digests).

        Raises:
            ImageNotFoundError: none of them is stored.
        """
        for candidate in wanted:
            if record := self.record(self.digest_of(candidate)):
                os.utime(self._places.record(record.digest))
                return self._image(name, record)
        raise _not_found(name, wanted[-1])

    def digest_of(self, name: str) -> str:
        """Return the digest (hexadecimal) of a full reference or a digest; empty: unknown."""
        if reference.is_digest(name):
            return name.removeprefix("sha256:")
        try:
            return self._places.reference(name).read_text()
        except FileNotFoundError:
            return ""

    def record(self, digest: str) -> Record | None:
        """Return the record of a digest (hexadecimal), if there is one."""
        try:
            return msgspec.json.decode(self._places.record(digest).read_bytes(), type=Record)
        except FileNotFoundError:
            return None

    def has_layer(self, diff_id: str) -> bool:
        """Whether the layer is there, whole: it is renamed into place when it is."""
        return self._places.layer(diff_id).is_dir()

    def layer_ids(self) -> list[str]:
        """Return the diff ids of all stored layers."""
        return [path.name for path in self._places.layers.iterdir()]

    def layer_sizes(self) -> dict[str, int]:
        """Return diff id → bytes of the archive, for all layers of stored images."""
        return {
            layer: size
            for record in self._records()
            for layer, size in zip(record.layers, record.sizes, strict=True)
            if self.has_layer(layer)
        }

    def add_layer(self, unpacked: Path, diff_id: str) -> None:
        """Move a finished directory into the store; it is on disk before it has its name."""
        os.sync()
        if not self.has_layer(diff_id):
            unpacked.rename(self._places.layer(diff_id))
            durable.sync(self._places.layers)

    def add(self, record: Record, name: str) -> None:
        """Store an image whose layers are all there, and let *name* (full form) mean it."""
        write_atomic(self._places.record(record.digest), msgspec.json.encode(record))
        write_atomic(self._places.reference(name), record.digest.encode())

    def infos(self) -> list[ImageInfo]:
        """Return the named images, by name. A layer counts for the oldest image that has it."""
        return sorted(self._infos(), key=lambda info: info.reference)

    def hold(self, digest: str, holder: str, state_dir: Path) -> None:
        """Mark the image (hexadecimal digest) as needed by *holder* while *state_dir* exists."""
        folder = self._places.uses(digest)
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / quote(holder, safe="")
        fresh = folder / f".{link.name}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(state_dir.absolute())
        fresh.rename(link)

    def release(self, digest: str, holder: str) -> None:
        """Take the mark of *holder* away."""
        (self._places.uses(digest) / quote(holder, safe="")).unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Forget a reference, and its image unless another name means it.

        Raises:
            ImageNotFoundError: there is no such reference.
            ResourceBusyError: sandboxes need the image, which has no other name; names some.
        """
        digest = self.digest_of(name)
        if not digest:
            raise _not_found(name, name)
        users = self._users(digest)
        if users and self._names_of(digest) == [name]:
            raise ResourceBusyError(
                f"{name} is used by {len(users)} sandbox(es)",
                context={"digest": f"sha256:{digest}", "users": users[:10]},
                suggestion="destroy them first",
            )
        self._places.reference(name).unlink(missing_ok=True)
        self.prune()

    def prune(self, settle: float = SETTLE) -> int:
        """Remove images no name and no sandbox needs, and layers of no image.

        Args:
            settle: seconds an image is left alone after it was last found.

        Returns:
            The number of images removed.
        """
        named = {self.digest_of(unquote(path.name)) for path in self._references()}
        kept: set[str] = set()
        removed = 0
        for path in self._places.records.glob("[!.]*.json"):
            record = msgspec.json.decode(path.read_bytes(), type=Record)
            recent = time.time() - path.stat().st_mtime < settle
            if record.digest in named or recent or self._users(record.digest):
                kept.update(record.layers)
                continue
            path.unlink()
            shutil.rmtree(self._places.uses(record.digest), ignore_errors=True)
            removed += 1
        for diff_id in set(self.layer_ids()) - kept:
            self._delete_layer(diff_id)
        return removed

    def sweep(self) -> None:
        """Remove what work that was killed left behind. The lock is held, so nobody works."""
        for path in self._places.leftovers():
            with suppress(OSError):
                trees.remove(path)

    def _delete_layer(self, diff_id: str) -> None:
        """Take its name away first: half a layer must never be found."""
        with self._places.scratch() as trash:
            self._places.layer(diff_id).rename(trash / diff_id)

    def _users(self, digest: str) -> list[str]:
        folder = self._places.uses(digest)
        if not folder.is_dir():
            return []
        return sorted(unquote(link.name) for link in folder.glob("[!.]*") if link.exists())

    def _names_of(self, digest: str) -> list[str]:
        names = [unquote(path.name) for path in self._references()]
        return [name for name in names if self.digest_of(name) == digest]

    def _references(self) -> list[Path]:
        try:
            return [p for p in self._places.references.iterdir() if not p.name.startswith(".")]
        except FileNotFoundError:
            return []

    def _records(self) -> list[Record]:
        paths = self._places.records.glob("[!.]*.json")
        return [msgspec.json.decode(path.read_bytes(), type=Record) for path in paths]

    def _infos(self) -> Iterator[ImageInfo]:
        records = {record.digest: record for record in self._records()}
        owner: dict[str, str] = {}
        for record in sorted(records.values(), key=lambda r: r.created_at):
            owner |= {layer: record.digest for layer in record.layers if layer not in owner}
        for path in self._references():
            name = unquote(path.name)
            found = records.get(self.digest_of(name))
            if found is None:
                continue
            sized = zip(found.layers, found.sizes, strict=True)
            yield ImageInfo(
                reference=name,
                digest=f"sha256:{found.digest}",
                size=sum(size for layer, size in sized if owner[layer] == found.digest),
                created_at=datetime.fromtimestamp(found.created_at, UTC),
            )

    def _image(self, name: str, record: Record) -> Image:
        return Image(
            reference=name,
            digest=f"sha256:{record.digest}",
            # Overlay refuses a layer given twice, and the upper one decides all the lower does.
            layers=tuple(map(self._places.layer, dict.fromkeys(reversed(record.layers)))),
            config=image_config(record.document),
        )


def _not_found(name: str, last: str) -> ImageNotFoundError:
    if last == str(reference.parse(reference.BASE)):
        suggestion = "build it with: atoll image build-base"
    else:
        suggestion = f"get it with: atoll image pull {name}"
    return ImageNotFoundError(
        f"no image {name} is stored here", context={"image": name}, suggestion=suggestion
    )
