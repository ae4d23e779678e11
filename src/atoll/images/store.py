"""The images of a host: found by reference, made once, shared, never removed under a user.

Several engines share one store. Whoever adds or removes holds its lock; readers need none. An
image an engine needs, also for a sandbox that sleeps, is marked by `hold`: the mark outlives a
crash of the engine and means nothing any more once that engine's state directory is gone.
"""

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from atoll.errors import (
    ImageNotFoundError,
    InvalidImageError,
    NotSupportedByRuntimeError,
    SandboxError,
    from_os_error,
)
from atoll.host import trees
from atoll.host.threads import run_to_end
from atoll.images import base, certificates, context, reference
from atoll.images.archive import Limits
from atoll.images.blobs import opened
from atoll.images.build import Builder, BuildNetwork
from atoll.images.catalog import Catalog
from atoll.images.certificates import Trust, host_trust
from atoll.images.layers import unpack
from atoll.images.layout import Image, Places, Record
from atoll.images.lock import exclusive
from atoll.images.oci import LayoutImage, announce, blob_path, document_digest, read_layout
from atoll.images.pull import bounded, pull
from atoll.images.reach import Reach
from atoll.images.recipe import Recipe
from atoll.images.steps import Progress
from atoll.settings import MB, ImageSettings, StorageSettings
from atoll.wire.sandbox import ImageInfo

_BASE = str(reference.parse(reference.BASE))
_BUSY = "changes images"
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _silent(line: str) -> None:
    """Drop a progress line."""


class ImageStore:
    """All images of this host. Safe to use from several tasks and processes."""

    def __init__(self, storage: StorageSettings, images: ImageSettings) -> None:
        self._settings = images
        self._cache_dir = storage.cache_dir
        self._places = Places(storage.cache_dir / "images")
        self._catalog = Catalog(self._places)
        self._reach = Reach(self._places.unreachable)
        self._trusted: tuple[Any, Trust | None] = (None, None)

    async def resolve(self, name: str) -> Image:
        """Return the stored image that *name* (a reference or an image digest) means.

        Raises:
            ImageNotFoundError: it is not stored here.
            InvalidImageError: *name* is not a reference.
        """
        return await self._call(self._catalog.find, name, self._wanted(name))

    async def obtain(self, name: str, progress: Progress = _silent) -> Image:
        """Return the image *name* means, pulled first if it is not stored here.

        Raises:
            ImageNotFoundError: neither stored here nor at its registry.
            ImagePullFailedError: its registry could not be reached, and nothing stands in for it.
        """
        wanted = self._wanted(name)
        try:
            return await self._call(self._catalog.find, name, wanted[:1])
        except ImageNotFoundError:
            if reference.is_digest(name) or reference.parse(wanted[0]).is_local:
                raise
        if len(wanted) == 1 or await self._offers(wanted[0]):
            await self._pull(wanted[0], progress, again=False)
        return await self._call(self._catalog.find, name, wanted)

    async def pull(self, name: str, progress: Progress = _silent) -> Image:
        """Get an image from its registry, also if one is stored under the name already.

        Raises:
            ImageNotFoundError: the registry has no such image.
            ImagePullFailedError: the registry could not be reached or failed.
            InvalidImageError: the name or the image is malformed.
        """
        full = str(reference.parse(name))
        await self._pull(full, progress, again=True)
        return await self.resolve(full)

    async def build(
        self,
        folder: Path,
        dockerfile: str = "Dockerfile",
        *,
        tag: str,
        build_args: Mapping[str, str] | None = None,
        network: BuildNetwork | None = None,
        progress: Progress = _silent,
    ) -> Image:
        """Build a Dockerfile and store the image as *tag*.

        Args:
            folder: build context; it is copied, and links in it are not followed.
            dockerfile: path in the context.
            tag: reference to store it under.
            build_args: values of ``ARG`` lines.
            network: where steps run; None: in the host's network.
            progress: gets each line of the build's output.

        Raises:
            ImageBuildFailedError: a step failed; `context.log` has the end of its output.
            ImageNotFoundError: an image it is built from does not exist.
            ImagePullFailedError: an image it is built from could not be had.
            InvalidImageError: the Dockerfile, tag or context is malformed.
            FileTooLargeError: the context is over the limit.
            RuntimeNotAvailableError: a tool is missing.
            NotSupportedByRuntimeError: this is not root.
        """
        if uid := os.geteuid():
            raise NotSupportedByRuntimeError(
                "an engine without root cannot build Dockerfiles",
                context={"uid": uid, "image": tag},
                suggestion="build it elsewhere and name it by its registry; or run the engine as root",
            )
        name = reference.parse(tag)
        if name.digest or name.name == reference.BASE:
            raise InvalidImageError(f"an image cannot be built as {tag}")
        async with self._changing(progress) as scratch:
            copy, layout = scratch / "context", scratch / "layout"
            text = await self._call(context.take, folder, dockerfile, copy, self._limit)
            await self._call(announce, layout, self._catalog.layer_ids())
            builder = Builder(self._places, self._settings, await self.trust(), self._base_layer)
            await builder.build(
                copy, text, name, layout, progress, build_args=build_args or {}, network=network
            )
            await self._take_in(layout, str(name), scratch)
        return await self.resolve(str(name))

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
        async with self._changing(progress) as scratch:
            if refresh or not await self._call(self._has_base, wanted):
                await self._add_base(wanted, scratch, progress)
        return await self.resolve(_BASE)

    async def list(self) -> list[ImageInfo]:
        """Return all named images, by name."""
        return await self._call(self._catalog.infos)

    async def hold(self, digest: str, holder: str, state_dir: Path) -> None:
        """Keep an image while *state_dir* exists, until `release`.

        Args:
            digest: the image, as `Image.digest` has it.
            holder: who needs it, unique on this host: engine and sandbox.
            state_dir: the engine's state directory.
        """
        await self._call(self._catalog.hold, _digits(digest), holder, state_dir)

    async def release(self, digest: str, holder: str) -> None:
        """Take back what `hold` said. Idempotent."""
        await self._call(self._catalog.release, _digits(digest), holder)

    async def remove(self, name: str, progress: Progress = _silent) -> None:
        """Forget a reference, and its image unless another name means it.

        Raises:
            ImageNotFoundError: there is no such reference.
            ResourceBusyError: a sandbox needs the image, and it has no other name.
        """
        full = str(reference.parse(name))
        async with self._changing(progress):
            await self._call(self._catalog.remove, full)

    async def prune(self, progress: Progress = _silent, *, build_cache: bool = False) -> int:
        """Remove images that no name and no sandbox needs; return how many.

        Args:
            progress: is told when another process has to be waited for.
            build_cache: also forget all cached build steps.
        """
        async with self._changing(progress):
            if build_cache:
                await self._call(trees.remove, self._places.build)
            return await self._call(self._catalog.prune)

    async def trust(self) -> Trust | None:
        """Return what sandboxes need to trust the host's extra CA certificates, if they shall."""
        if not self._settings.trust_host_ca:
            return None
        seen = certificates.signature()
        if seen != self._trusted[0] or not _is_there(self._trusted[1]):
            self._trusted = seen, await self._call(host_trust, self._cache_dir)
        return self._trusted[1]

    async def _pull(self, full_name: str, progress: Progress, *, again: bool) -> None:
        wanted = reference.parse(full_name)
        async with self._changing(progress) as scratch:
            # Of several tasks that miss an image at once, the first pulls it for all.
            if not again and self._catalog.digest_of(full_name):
                return
            layout = scratch / "layout"
            pulling = pull(
                wanted,
                f"oci:{layout}:image",
                progress,
                env=self._settings.build_env,
                timeout=self._settings.build_timeout,
            )
            await bounded(pulling, layout, self._limit)
            await self._take_in(layout, full_name, scratch)
            self._reach.forget(wanted)

    async def _offers(self, full_name: str) -> bool:
        return await self._reach.offers(reference.parse(full_name), self._settings.build_env)

    @asynccontextmanager
    async def _changing(self, progress: Progress) -> AsyncIterator[Path]:
        """Hold the lock, with a directory for work in progress."""
        await self._call(self._places.make)
        async with exclusive(self._places.lock, _BUSY, progress):
            await self._call(self._catalog.sweep)
            with self._places.scratch() as scratch:
                yield scratch

    async def _call(
        self, work: Callable[_P, _T], /, *arguments: _P.args, **options: _P.kwargs
    ) -> _T:
        """Do blocking work in a thread; what the file system refuses becomes a typed error.

        It is at its end when this returns or is cancelled: an undo must not race with it.
        """
        try:
            return await run_to_end(partial(work, *arguments, **options))
        except SandboxError:
            raise
        except OSError as error:
            raise from_os_error(error, error.filename or str(self._places.root)) from error

    @property
    def _limit(self) -> int:
        """Bytes that one image may have."""
        return self._settings.max_image_mb * MB

    def _wanted(self, name: str) -> tuple[str, ...]:
        if reference.is_digest(name):
            return (name,)
        return reference.candidates(name, self._settings.image_aliases)

    def _has_base(self, wanted: Recipe) -> bool:
        record = self._catalog.record(self._catalog.digest_of(_BASE))
        return record is not None and record.recipe == wanted.digest

    async def _base_layer(self) -> tuple[Record, Path]:
        image = await self.resolve(reference.BASE)
        record = await self._call(self._catalog.record, _digits(image.digest))
        if record is None:
            raise ImageNotFoundError("the base image was removed just now")
        return record, image.layers[0]

    async def _add_base(self, wanted: Recipe, scratch: Path, progress: Progress) -> None:
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
        await self._call(self._catalog.add_layer, root, built.diff_id)
        await self._call(self._catalog.add, record, _BASE)

    async def _take_in(self, layout: Path, name: str, scratch: Path) -> None:
        """Unpack what is new of a layout's image and store it as *name*."""
        image = await self._call(read_layout, layout)
        sizes = await self._call(self._catalog.layer_sizes)
        limits = Limits(size=self._limit)
        for layer in image.layers:
            if self._catalog.has_layer(layer.diff_id):
                limits = limits.less(sizes.get(layer.diff_id, 0))
                continue
            unpacked = scratch / layer.diff_id
            async with opened(blob_path(layout, layer.digest), layer.media_type) as source:
                had = await self._call(unpack, source, unpacked, layer.diff_id, limits)
            limits = limits.less(had.size, had.members)
            sizes[layer.diff_id] = had.size
            await self._call(self._catalog.add_layer, unpacked, layer.diff_id)
        await self._call(self._catalog.add, _record(image, sizes), name)


def _record(image: LayoutImage, sizes: Mapping[str, int]) -> Record:
    layers = tuple(layer.diff_id for layer in image.layers)
    return Record(
        digest=image.digest,
        layers=layers,
        document=image.document,
        created_at=time.time(),
        sizes=tuple(sizes.get(layer, 0) for layer in layers),
    )


def _is_there(trust: Trust | None) -> bool:
    """Whether nobody has removed its directory, which is a cache."""
    return trust is None or trust.directory.is_dir()


def _digits(digest: str) -> str:
    return digest.removeprefix("sha256:")
