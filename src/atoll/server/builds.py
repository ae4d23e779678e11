"""Image builds over HTTP: the context comes as a tar archive, the answer is NDJSON.

A caller never names a path of this host: the archive is unpacked into a scratch directory, and
the builder takes a bounded copy of that. Lines of the answer are `BuildEvent`s: progress while it
works, one result or error at the end.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.engine.parts import Image
from atoll.engine.storage.room import Share
from atoll.errors import FileTooLargeError, ImageNotFoundError, SandboxError, from_os_error
from atoll.images import context
from atoll.images.steps import Progress
from atoll.server import answer, shapes
from atoll.server.answer import Stream
from atoll.settings import MB
from atoll.wire import ops
from atoll.wire.sandbox import BuildDone, BuildEvent, BuildFailed, BuildProgress, ImageInfo

HEARTBEAT = 15.0
"""Seconds of silence after which an empty progress line is sent."""

Work = Callable[[Progress], Awaitable[Image]]


async def image(engine: Engine, request: Request) -> Stream:
    """Build the Dockerfile of the uploaded context."""
    wanted: ops.BuildImage = answer.decode_query(request, ops.BuildImage)
    scratch = tempfile.TemporaryDirectory(
        dir=engine.settings.storage.state_dir, prefix="context-", ignore_cleanup_errors=True
    )
    share = engine.room.share()

    async def discard() -> None:
        await asyncio.to_thread(scratch.cleanup)
        share.release()

    try:
        await _receive(engine, request, Path(scratch.name), share)
    except BaseException as error:
        await discard()
        if isinstance(error, OSError) and not isinstance(error, SandboxError):
            raise from_os_error(error, scratch.name) from error
        raise

    async def work(progress: Progress) -> Image:
        try:
            return await engine.build(
                Path(scratch.name), wanted.dockerfile, tag=wanted.tag, progress=progress
            )
        finally:
            await discard()

    return _told(engine, request, work)


def base(engine: Engine, request: Request) -> Stream:
    """Build the base image if it is not there."""
    return _told(engine, request, engine.images.build_base)


async def _receive(engine: Engine, request: Request, scratch: Path, share: Share) -> None:
    limit = engine.settings.images.max_image_mb * MB
    with tempfile.TemporaryFile(dir=scratch.parent) as archive:
        size = 0
        async for chunk in answer.uploaded(request):
            size += len(chunk)
            if size > limit:
                raise FileTooLargeError(
                    f"the build context has more than {limit} bytes", context={"limit": limit}
                )
            share.take(len(chunk))
            await asyncio.to_thread(archive.write, chunk)
        share.take(2 * size)  # unpacked here, and copied by the builder
        archive.seek(0)
        await asyncio.to_thread(context.receive, archive, scratch, min(limit, size))


def _told(engine: Engine, request: Request, work: Work) -> Stream:
    request_id: str = request.scope["request_id"]

    async def run(stream: Stream) -> None:
        lines: asyncio.Queue[str] = asyncio.Queue()
        task = asyncio.ensure_future(work(lines.put_nowait))
        await stream.start(200, shapes.NDJSON, answer.AS_IT_COMES)
        try:
            async for line in _until_done(lines, task):
                await stream.write(_encode(BuildProgress(message=line)))
            info = await _info(engine, task.result().reference)
            await stream.write(_encode(BuildDone(image=info)))
        except SandboxError as error:
            await stream.write(_encode(BuildFailed(error=shapes.envelope(error, request_id))))
        finally:
            task.cancel()
            await asyncio.wait({task})
        await stream.end()

    return Stream(run)


async def _until_done(lines: asyncio.Queue[str], task: asyncio.Future[Image]) -> AsyncIterator[str]:
    """Yield lines until *task* is done and all are told; an empty one after each silence."""
    while True:
        line = asyncio.ensure_future(lines.get())
        either: set[asyncio.Future[Any]] = {line, task}
        await asyncio.wait(either, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
        if line.done():
            yield line.result()
        else:
            line.cancel()
            if task.done():
                return
            yield ""


async def _info(engine: Engine, reference: str) -> ImageInfo:
    for info in await engine.images.list():
        if info.reference == reference:
            return info
    raise ImageNotFoundError(f"{reference} was removed just now", context={"image": reference})


def _encode(event: BuildEvent) -> bytes:
    return msgspec.json.encode(event, enc_hook=str) + b"\n"
