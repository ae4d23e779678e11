"""The images of a host: found by reference, made once, shared, never removed under a user.

Several engines share one store. Whoever adds or removes holds its lock; readers need none. An
image an engine needs, also for a sandbox that sleeps, is marked by `hold`: the mark outlives a
crash of the engine and means nothing any more once that engine's state directory is gone.
"""

import asyncio
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from atoll.errors import ImageNotFoundError, ImagePullFailedError, InvalidImageError
from atoll.images import base, context, reference
from atoll.images.build import Builder
from atoll.images.catalog import Catalog
from atoll.images.certificates import Trust, host_trust
from atoll.images.layers import Limits, open_blob, unpack
from atoll.images.layout import Image, Places, Record
from atoll.images.lock import exclusive
from atoll.images.oci import LayoutImage, announce, blob_path, document_digest, read_layout
from atoll.images.pull import pull
from atoll.images.recipe import Recipe
from atoll.images.steps import Progress
from atoll.settings import MB, ImageSettings, StorageSettings
from atoll.wire.sandbox import ImageInfo

_BASE = str(reference.parse(reference.BASE))
_BUSY = "changes images"


def _silent(line: str) -> None:
    """Drop a progress line."""


class ImageStore:
    """All images of this host. Safe to use from several tasks and processes."""

    def __init__(self, storage: StorageSettings, images: ImageSettings) -> None:
        self._settings = images
        self._cache_dir = storage.cache_dir
        self._places = Places(storage.cache_dir / "images")
        self._catalog = Catalog(self._places)

    async def resolve(self, name: str) -> Image:
        """Return the stored image that *name* (a reference or an image digest) means.

        Raises:
            ImageNotFoundError: it is not stored here.
            InvalidImageError: *name* is not a reference.
        """
        return await asyncio.to_thread(self._catalog.find, name, self._wanted(name))

    async def obtain(self, name: str, progress: Progress = _silent) -> Image:
        """Return the image *name* means, pulled first if it is not stored here.

        Raises:
            ImageNotFoundError: neither stored here nor at its registry.
            ImagePullFailedError: its registry could not be reached, and nothing stands in for it.
        """
        wanted = self._wanted(name)
        try:
            return await asyncio.to_thread(self._catalog.find, name, wanted[:1])
        except ImageNotFoundError:
            if reference.is_digest(name) or reference.parse(wanted[0]).is_local:
                raise
        try:
            await self._pull(wanted[0], progress, again=False)
        except (ImageNotFoundError, ImagePullFailedError):
            if len(wanted) == 1:
                raise
        return await asyncio.to_thread(self._catalog.find, name, wanted)

    async def pull(self, name: str, progress: Progress = _silent) -> Image:
        """Get an image from its registry, also if one is stored under the name already.

        Raises:
            ImageNotFoundError: the registry has no such image.
            ImagePullFailedError: the registry could not be reached or failed.
            InvalidImageError: the name or the image is malformed.
        """
        full = str(reference.parse(name))
        await self._pull(full, progress, again=True)
        return await asyncio.to_thread(self._catalog.find, name, (full,))

    async def build(
        self,
        folder: Path,
        dockerfile: str = "Dockerfile",
        *,
        tag: str,
        build_args: Mapping[str, str] | None = None,
        progress: Progress = _silent,
    ) -> Image:
        """Build a Dockerfile and store the image as *tag*.

        Args:
            folder: build context; it is copied, and links in it are not followed.
            dockerfile: path in the context.
            tag: reference to store it under.
            build_args: values of ``ARG`` lines.
            progress: gets each line of the build's output.

        Raises:
            ImageBuildFailedError: a step failed; `context.log` has the end of its output.
            ImageNotFoundError: an image it is built from does not exist.
            ImagePullFailedError: an image it is built from could not be had.
            InvalidImageError: the Dockerfile, tag or context is malformed.
            FileTooLargeError: the context is over the limit.
            RuntimeNotAvailableError: a tool is missing.
        """
        name = reference.parse(tag)
        if name.digest or name.name == reference.BASE:
            raise InvalidImageError(f"an image cannot be built as {tag}")
        self._places.make()
        async with exclusive(self._places.lock, _BUSY, progress):
            with self._places.scratch() as scratch:
                copy, layout = scratch / "context", scratch / "layout"
                limit = self._settings.max_image_mb * MB
                text = await asyncio.to_thread(context.take, folder, dockerfile, copy, limit)
                await asyncio.to_thread(announce, layout, self._catalog.layer_ids())
                builder = Builder(
                    self._places, self._settings, await self.trust(), self._base_layer
                )
                arguments = build_args or {}
                await builder.build(copy, text, name, layout, progress, build_args=arguments)
                await asyncio.to_thread(self._take_in, layout, str(name), scratch)
        return await self.resolve(tag)

    async def build_base(self, progress: Progress = _silent, *, refresh: bool = False) -> Image:
        """Return the base image, built first if there is none of the current recipe.

        Args:
            progress: gets each line of the steps' output.
            refresh: build it anyway, with today's packages.

        Raises:
            RuntimeNotAvailableError: a tool or root is missing.
            ImageBuildFailedError: a step failed; `context.log` has the end of its output.
        """
        wanted = await base.host_recipe()
        self._places.make()
        async with exclusive(self._places.lock, _BUSY, progress):
            if refresh or not await asyncio.to_thread(self._has_base, wanted):
                await self._add_base(wanted, progress)
        return await self.resolve(reference.BASE)

    async def list(self) -> list[ImageInfo]:
        """Return all named images, by name."""
        return await asyncio.to_thread(self._catalog.infos)

    async def hold(self, digest: str, holder: str, state_dir: Path) -> None:
        """Keep an image while *state_dir* exists, until `release`.

        Args:
            digest: the image, as `Image.digest` has it.
            holder: who needs it, unique on this host: engine and sandbox.
            state_dir: the engine's state directory.
        """
        await asyncio.to_thread(self._catalog.hold, _digits(digest), holder, state_dir)

    async def release(self, digest: str, holder: str) -> None:
        """Take back what `hold` said. Idempotent."""
        await asyncio.to_thread(self._catalog.release, _digits(digest), holder)

    async def remove(self, name: str, progress: Progress = _silent) -> None:
        """Forget a reference, and its image unless another name means it.

        Raises:
            ImageNotFoundError: there is no such reference.
            ResourceBusyError: a sandbox needs the image.
        """
        full = str(reference.parse(name))
        async with exclusive(self._places.lock, _BUSY, progress):
            await asyncio.to_thread(self._remove, full)

    async def prune(self, progress: Progress = _silent, *, build_cache: bool = False) -> int:
        """Remove images that no name and no sandbox needs; return how many.

        Args:
            progress: is told when another process has to be waited for.
            build_cache: also forget all cached build steps.
        """
        self._places.make()
        async with exclusive(self._places.lock, _BUSY, progress):
            await asyncio.to_thread(self._catalog.sweep)
            if build_cache:
                await asyncio.to_thread(shutil.rmtree, self._places.build)
            return await asyncio.to_thread(self._catalog.prune)

    async def trust(self) -> Trust | None:
        """Return what sandboxes need to trust the host's extra CA certificates, if they shall."""
        if not self._settings.trust_host_ca:
            return None
        return await asyncio.to_thread(host_trust, self._cache_dir)

    async def _pull(self, full_name: str, progress: Progress, *, again: bool) -> None:
        wanted = reference.parse(full_name)
        self._places.make()
        async with exclusive(self._places.lock, _BUSY, progress):
            # Of several tasks that miss an image at once, the first pulls it for all.
            if not again and self._catalog.digest_of(full_name):
                return
            with self._places.scratch() as scratch:
                layout = scratch / "layout"
                await pull(
                    wanted,
                    f"oci:{layout}:image",
                    progress,
                    env=self._settings.build_env,
                    timeout=self._settings.build_timeout,
                )
                await asyncio.to_thread(self._take_in, layout, full_name, scratch)

    def _wanted(self, name: str) -> tuple[str, ...]:
        if reference.is_digest(name):
            return (name,)
        return reference.candidates(name, self._settings.image_aliases)

    def _remove(self, full_name: str) -> None:
        digest = self._catalog.digest_of(full_name)
        self._catalog.check_unused(digest)
        self._catalog.untag(full_name)
        self._catalog.prune()

    def _has_base(self, wanted: Recipe) -> bool:
        record = self._catalog.record(self._catalog.digest_of(_BASE))
        return record is not None and record.recipe == wanted.digest

    async def _base_layer(self) -> tuple[Record, Path]:
        image = await self.resolve(reference.BASE)
        record = await asyncio.to_thread(self._catalog.record, _digits(image.digest))
        if record is None:
            raise ImageNotFoundError("the base image was removed just now")
        return record, image.layers[0]

    async def _add_base(self, wanted: Recipe, progress: Progress) -> None:
        await asyncio.to_thread(self._catalog.sweep)
        with self._places.scratch() as scratch:
            root = scratch / "root"
            built = await base.build(wanted, root, self._settings.build_env, progress)
            record = Record(
                digest=document_digest(built.document),
                layers=(built.diff_id,),
                document=built.document,
                created_at=time.time(),
                sizes=(built.size,),
                recipe=wanted.digest,
            )
            await asyncio.to_thread(self._catalog.add_layer, root, built.diff_id)
            await asyncio.to_thread(self._catalog.add, record, _BASE)

    def _take_in(self, layout: Path, name: str, scratch: Path) -> None:
        """Unpack what is new of a layout's image and store it as *name*."""
        image = read_layout(layout)
        sizes = self._catalog.layer_sizes()
        for layer in image.layers:
            if not self._catalog.has_layer(layer.diff_id):
                blob = blob_path(layout, layer.digest)
                limits = Limits(size=self._settings.max_image_mb * MB)
                with open_blob(blob, layer.media_type) as source:
                    unpacked = scratch / layer.diff_id
                    sizes[layer.diff_id] = unpack(source, unpacked, layer.diff_id, limits)
                self._catalog.add_layer(unpacked, layer.diff_id)
        self._catalog.add(_record(image, sizes), name)


def _record(image: LayoutImage, sizes: Mapping[str, int]) -> Record:
    layers = tuple(layer.diff_id for layer in image.layers)
    return Record(
        digest=image.digest,
        layers=layers,
        document=image.document,
        created_at=time.time(),
        sizes=tuple(sizes.get(layer, 0) for layer in layers),
    )


def _digits(digest: str) -> str:
    return digest.removeprefix("sha256:")
