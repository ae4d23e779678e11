"""Handlers of volumes, and of their files where no sandbox is needed."""

import asyncio
from typing import BinaryIO

from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.errors import ResourceBusyError
from atoll.server import answer
from atoll.server.answer import Stream
from atoll.server.files import INERT
from atoll.wire import ops
from atoll.wire.base import Done, Empty
from atoll.wire.volumes import (
    CreateVolume,
    ListVolumeFiles,
    ListVolumes,
    MakeVolumeFolder,
    MoveVolumeFile,
    PublishVolume,
    RemoveVolumeFile,
    UpdateVolume,
    VolumeFile,
    VolumeFileList,
    VolumeInfo,
    VolumePage,
    VolumePath,
    VolumeWritten,
)

_PIECE = 1 << 20


def _place(request: Request) -> tuple[str, str]:
    return request.path_params["namespace"], request.path_params["volume"]


async def create(engine: Engine, request: Request, wanted: CreateVolume) -> VolumeInfo:
    """Make a volume."""
    return await engine.volumes.create(request.path_params["namespace"], wanted)


async def listing(engine: Engine, request: Request, wanted: ListVolumes) -> VolumePage:
    """List a namespace's volumes."""
    return await engine.volumes.list(request.path_params["namespace"], wanted)


async def get(engine: Engine, request: Request, wanted: Empty) -> VolumeInfo:
    """Return one volume."""
    return await engine.volumes.get(*_place(request))


async def resize(engine: Engine, request: Request, wanted: UpdateVolume) -> VolumeInfo:
    """Give one volume another limit."""
    return await engine.volumes.resize(*_place(request), wanted.size)


async def publish(engine: Engine, request: Request, wanted: PublishVolume) -> VolumeInfo:
    """Make a sandbox's copy of one volume its content."""
    return await engine.volumes.publish(*_place(request), wanted.sandbox)


async def delete(engine: Engine, request: Request, wanted: Empty) -> Done:
    """Delete one volume and its files."""
    await engine.volumes.delete(*_place(request))
    return Done()


async def files(engine: Engine, request: Request, wanted: ListVolumeFiles) -> VolumeFileList:
    """List a folder of a volume."""
    return await engine.contents.files(*_place(request), wanted)


async def make_folder(engine: Engine, request: Request, wanted: MakeVolumeFolder) -> Done:
    """Make a folder in a volume."""
    await engine.contents.make_folder(*_place(request), wanted)
    return Done()


async def move(engine: Engine, request: Request, wanted: MoveVolumeFile) -> Done:
    """Give a file or folder in a volume another path."""
    await engine.contents.move(*_place(request), wanted)
    return Done()


async def remove(engine: Engine, request: Request, wanted: RemoveVolumeFile) -> Done:
    """Remove a file or folder from a volume."""
    await engine.contents.remove(*_place(request), wanted)
    return Done()


async def write(engine: Engine, request: Request, wanted: None) -> VolumeWritten:
    """Write the body to a file of a volume."""
    path = answer.decode_query(request, VolumePath).path
    async with engine.contents.writing(*_place(request), path) as writing:
        async for chunk in answer.uploaded(request):
            await writing.write(chunk)
        return await writing.end()


async def read(engine: Engine, request: Request, wanted: None) -> Stream:
    """Answer with a file of a volume."""
    path = answer.decode_query(request, VolumePath).path

    async def run(stream: Stream) -> None:
        file, told = await engine.contents.opened(*_place(request), path)
        with file:
            await _sent(file, told, stream)

    return Stream(run)


async def _sent(file: BinaryIO, told: VolumeFile, stream: Stream) -> None:
    """Send as many bytes as are told, also of a file that grows meanwhile."""
    headers = {ops.RESULT_HEADER: answer.ascii_json(told), "content-length": str(told.size)}
    await stream.start(200, "application/octet-stream", headers | INERT)
    left = told.size
    while left and (data := await asyncio.to_thread(file.read, min(left, _PIECE))):
        await stream.write(data)
        left -= len(data)
    if left:  # without an end the caller sees that it was cut
        raise ResourceBusyError(f"{told.path} changed while it was read")
    await stream.end()
