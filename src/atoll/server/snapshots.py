"""Handlers of snapshots, forks and comparisons."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from atoll.engine.engine import Engine
from atoll.server import addressed, answer
from atoll.server.answer import Stream
from atoll.server.files import INERT
from atoll.server.queries import labels
from atoll.wire import ops
from atoll.wire.base import Done, Empty
from atoll.wire.sandbox import SandboxInfo
from atoll.wire.snapshots import (
    Diff,
    DiffRequest,
    Fork,
    ForkResult,
    ListSnapshots,
    Patch,
    RestoreSnapshot,
    Snapshot,
    SnapshotPage,
    TakeSnapshot,
)


async def take(engine: Engine, request: Request, wanted: TakeSnapshot) -> Snapshot:
    """Keep the files as they are now."""
    return await engine.snapshots.take(addressed.sandbox(engine, request), wanted)


async def fork(engine: Engine, request: Request, wanted: Fork) -> ForkResult:
    """Make sandboxes that begin with these files."""
    return await engine.forks.fork(addressed.sandbox(engine, request), wanted)


async def restore(engine: Engine, request: Request, wanted: RestoreSnapshot) -> SandboxInfo:
    """Go back to a snapshot."""
    box = addressed.sandbox(engine, request)
    return box.info(await engine.forks.restore(box, wanted.snapshot))


async def diff(engine: Engine, request: Request, wanted: DiffRequest) -> Diff:
    """Tell what changed since a snapshot."""
    return await engine.snapshots.diff(addressed.sandbox(engine, request), wanted.since)


async def patch(engine: Engine, request: Request, wanted: None) -> Response:
    """Tell what changed since a snapshot as a patch."""
    since = answer.decode_query(request, DiffRequest).since
    text, complete = await engine.snapshots.patch(addressed.sandbox(engine, request), since)
    told = Patch(size=len(text), truncated=not complete)
    headers = {ops.RESULT_HEADER: answer.ascii_json(told), **INERT}
    return Response(text, media_type="text/x-diff", headers=headers)


async def listing(engine: Engine, request: Request, wanted: ListSnapshots) -> SnapshotPage:
    """List a namespace's snapshots."""
    namespace = request.path_params["namespace"]
    return await engine.snapshots.list(namespace, wanted, labels(wanted.labels))


async def get(engine: Engine, request: Request, wanted: Empty) -> Snapshot:
    """Return one snapshot."""
    params = request.path_params
    return (await engine.snapshots.get(params["namespace"], params["snapshot"])).snapshot


async def export(engine: Engine, request: Request, wanted: None) -> Stream:
    """Answer with a snapshot as one file."""
    params = request.path_params
    exported = await engine.exports.export(params["namespace"], params["snapshot"])
    # Labels may be longer than a header.
    told = msgspec.structs.replace(exported.snapshot, labels={})
    headers = {ops.RESULT_HEADER: answer.ascii_json(told), **INERT}

    async def run(stream: Stream) -> None:
        await stream.start(200, "application/octet-stream", headers)
        async for piece in exported.body:
            await stream.write(piece)
        await stream.end()

    return Stream(run)


async def receive(engine: Engine, request: Request, wanted: None) -> Snapshot:
    """Take a snapshot in from its file."""
    answer.decode_query(request, Empty)
    return await engine.exports.receive(request.path_params["namespace"], answer.uploaded(request))


async def delete(engine: Engine, request: Request, wanted: Empty) -> Done:
    """Forget one snapshot."""
    await engine.snapshots.delete(request.path_params["namespace"], request.path_params["snapshot"])
    return Done()
