"""The images of a host: found by reference, made once, shared, never removed under a user.

Several engines share one store. Whoever adds or removes holds its lock; readers need none. An
image an engine needs, also for a sandbox that sleeps, is marked by `hold`: the mark outlives a
crash of the engine and means nothing any more once that engine's state directory is gone.
"""

import asyncio
import shutil
import time
from pathlib import Path

from atoll.images import base, reference
from atoll.images.catalog import Catalog
from atoll.images.layout import Image, Places, Record
from atoll.images.lock import exclusive
from atoll.images.oci import document_digest
from atoll.images.recipe import Recipe
from atoll.images.steps import Progress
from atoll.settings import ImageSettings, StorageSettings
from atoll.wire.sandbox import ImageInfo


def _silent(line: str) -> None:
    """Drop a progress line."""


class ImageStore:
    """All images of this host. Safe to use from several tasks and processes."""

    def __init__(self, storage: StorageSettings, images: ImageSettings) -> None:
        self._settings = images
        self._places = Places(storage.cache_dir / "images")
        self._catalog = Catalog(self._places)

    async def resolve(self, name: str) -> Image:
        """Return the stored image that *name* (a reference or an image digest) means.

        Raises:
            ImageNotFoundError: it is not stored here.
            InvalidImageError: *name* is not a reference.
        """
        return await asyncio.to_thread(self._catalog.find, name, self._wanted(name))

    async def list(self) -> list[ImageInfo]:
        """Return all named images, by name."""
        return await asyncio.to_thread(self._catalog.infos)

    async def build_base(self, progress: Progress = _silent, *, refresh: bool = False) -> Image:
        """Return the base image, built first if there is none of the current recipe.

        Args:
            refresh: build it anyway, with today's packages.

        Raises:
            RuntimeNotAvailableError: a tool or root is missing.
            ImageBuildFailedError: a step failed; `context.log` has the end of its output.
        """
        wanted = await base.host_recipe()
        self._places.make()
        async with exclusive(self._places.lock, "changes images", progress):
            if refresh or not await asyncio.to_thread(self._has_base, wanted):
                await self._add_base(wanted, progress)
        return await self.resolve(reference.BASE)

    def _wanted(self, name: str) -> tuple[str, ...]:
        if reference.is_digest(name):
            return (name,)
        return reference.candidates(name, self._settings.image_aliases)

    def _has_base(self, wanted: Recipe) -> bool:
        record = self._catalog.record(self._catalog.digest_of(_BASE))
        return record is not None and record.recipe == wanted.digest

    async def _add_base(self, wanted: Recipe, progress: Progress) -> None:
        self._catalog.sweep()
        scratch = self._places.scratch()
        try:
            built = await base.build(wanted, scratch / "root", self._settings.build_env, progress)
            record = Record(
                digest=document_digest(built.document),
                layers=(built.diff_id,),
                document=built.document,
                created_at=time.time(),
                size=built.size,
                recipe=wanted.digest,
            )
            await asyncio.to_thread(self._catalog.add_layer, scratch / "root", built.diff_id)
            await asyncio.to_thread(self._catalog.add, record, _BASE)
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)


_BASE = str(reference.parse(reference.BASE))
