"""Images of an engine: builds of Dockerfiles here, the base image, what is stored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from atoll.errors import OperationInterruptedError, from_wire
from atoll.sdk import _aio, _archive, _arguments, _shared
from atoll.sdk._async.transport import Body, ConnectionLostError, Transport, chunks_of
from atoll.wire import ops
from atoll.wire.base import Empty, Request
from atoll.wire.sandbox import BuildDone, BuildEvent, BuildFailed, ImageInfo, ImageList

Progress = Callable[[str], object]
"""Called with each line of a build's output."""


class Images:
    """The images of one engine."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self) -> ImageList:
        """Return all stored images."""
        return await self._transport.call(ops.LIST_IMAGES, {}, Empty())

    async def build(
        self,
        folder: str | Path,
        *,
        tag: str,
        dockerfile: str = "Dockerfile",
        on_progress: Progress | None = None,
    ) -> ImageInfo:
        """Build a Dockerfile and store the image as *tag*.

        Args:
            folder: build context on this host; it is packed and sent to the engine.
            tag: reference to store it under.
            dockerfile: path in *folder*.
            on_progress: called with each line of the build's output.

        Raises:
            ImageBuildFailedError: a step failed; `context` has the end of its output.
            InvalidImageError: the Dockerfile or the tag is malformed.
            OperationInterruptedError: the connection was lost; the build was ended.
        """
        content = _aio.pieces(_archive.pack(_archive.local_path("folder", folder)))
        wanted = ops.BuildImage(tag=tag, dockerfile=dockerfile)
        return await self._run(ops.BUILD_IMAGE, wanted, content, on_progress)

    async def build_base(self, *, on_progress: Progress | None = None) -> ImageInfo:
        """Build the base image if the engine has none of this version.

        Raises:
            ImageBuildFailedError: a step failed; `context` has the end of its output.
        """
        return await self._run(ops.BUILD_BASE, Empty(), None, on_progress)

    async def _run(
        self,
        op: ops.Op[Any, BuildDone],
        request: Request,
        content: Body | None,
        on_progress: Progress | None,
    ) -> ImageInfo:
        _arguments.callbacks(on_progress=on_progress)
        call = _shared.build_call(op, {}, request)
        try:
            async with self._transport.send(call, content=content) as answer:
                rest = b""
                async for chunk in chunks_of(answer):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event: BuildEvent = msgspec.json.decode(line, type=BuildEvent)
                        if isinstance(event, BuildFailed):
                            raise from_wire(event.error)
                        if isinstance(event, BuildDone):
                            return event.image
                        if event.message:
                            await _aio.call(on_progress, event.message)
        except ConnectionLostError as error:
            raise _shared.lost(op.name, str(error)) from error
        raise OperationInterruptedError(f"{op.name}: the engine's answer was cut")
