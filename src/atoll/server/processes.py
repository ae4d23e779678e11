"""Background processes over HTTP. Logs stream as frames, events of 0.12, or NDJSON."""

from typing import Any

import msgspec
from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.server import addressed, answer, shapes
from atoll.server.answer import Stream
from atoll.server.buffered import Output, both, pieces
from atoll.server.spool import spooled
from atoll.wire import frames, ids
from atoll.wire import process as wire
from atoll.wire.agent import OUTPUT_LIMIT
from atoll.wire.base import Empty
from atoll.wire.frames import Frame, Kind

MAX_WAIT = 60.0
"""Seconds one request waits for a process; who wants to wait longer asks again."""


def _id(request: Request) -> str:
    return ids.check_process_id(request.path_params["process"])


async def start(
    engine: Engine, request: Request, wanted: wire.StartProcessRequest
) -> wire.ProcessInfo:
    """Start one; its idempotency key is kept with it, so also by the next engine."""
    key = request.headers.get("idempotency-key")
    checked = ids.check_operation_id(key) if key else None
    return (
        await engine.processes.start(addressed.sandbox(engine, request), wanted, checked)
    ).info()


async def listing(engine: Engine, request: Request, wanted: Empty) -> wire.ProcessList:
    """Return all of them."""
    found = await engine.processes.listing(addressed.sandbox(engine, request))
    return wire.ProcessList(processes=[record.info() for record in found])


async def get(engine: Engine, request: Request, wanted: wire.ProcessQuery) -> wire.ProcessInfo:
    """Return one, after its end or after the time that the caller waits for it."""
    process = await engine.processes.get(
        addressed.sandbox(engine, request), _id(request), wanted.handle
    )
    if wanted.wait_ms > 0:
        await process.wait(min(wanted.wait_ms / 1000, MAX_WAIT))
    return process.record.info()


async def kill(engine: Engine, request: Request, wanted: wire.KillProcess) -> wire.ProcessInfo:
    """End one."""
    sandbox = addressed.sandbox(engine, request)
    killed = await engine.processes.kill(sandbox, _id(request), wanted.signal, wanted.handle)
    return killed.info()


async def kill_all(engine: Engine, request: Request, wanted: wire.KillAll) -> wire.Count:
    """End all of them."""
    count = await engine.processes.kill_all(addressed.sandbox(engine, request), wanted.signal)
    return wire.Count(count=count)


async def clean(engine: Engine, request: Request, wanted: Empty) -> wire.Count:
    """Forget those that have ended."""
    return wire.Count(count=await engine.processes.clean(addressed.sandbox(engine, request)))


async def logs(engine: Engine, request: Request, wanted: wire.LogsRequest) -> Stream:
    """Return the output of one that is kept, up to `OUTPUT_LIMIT` bytes of each stream."""
    id = _id(request)
    query = wire.LogsQuery(follow=False, handle=wanted.handle)
    source = engine.processes.stream(addressed.sandbox(engine, request), id, query)
    return Stream(lambda stream: _logs(engine, source, id, stream))


async def _logs(engine: Engine, source: answer.Frames, id: str, stream: Stream) -> None:
    """Gather on disk, as the output of a command: a log is as large."""
    with spooled(engine, OUTPUT_LIMIT) as stdout, spooled(engine, OUTPUT_LIMIT) as stderr:
        output = {Kind.STDOUT: Output(stdout), Kind.STDERR: Output(stderr)}
        gap = False
        async with source as found:
            async for frame in found:
                gap = gap or frame.kind == Kind.GAP
                if kept := output.get(Kind(frame.kind)):
                    await kept.add(frames.decode_output(frame.payload).data)
        truncated = gap or any(kept.cut for kept in output.values())
        body = {"processId": id, **both(output), "truncated": truncated}
        await stream.start(200, shapes.JSON)
        async for piece in pieces(body):
            await stream.write(piece)
        await stream.end()


async def stream(engine: Engine, request: Request, wanted: wire.LogsQuery) -> Stream:
    """Stream the output of one from an offset on."""
    id, request_id = _id(request), request.scope["request_id"]
    offset = answer.resumed(request, wanted.from_offset)
    wanted = msgspec.structs.replace(wanted, from_offset=offset)
    source = engine.processes.stream(addressed.sandbox(engine, request), id, wanted)
    accept = request.headers.get("accept", "")
    form: shapes.Form = LogSseForm(id, request_id)
    if frames.CONTENT_TYPE in accept:
        form = shapes.FramesForm(request_id)
    elif shapes.NDJSON in accept:
        form = shapes.NdjsonForm(request_id)
    return Stream(lambda stream: answer.pump(source, form, stream, request_id))


async def wait_for_port(
    engine: Engine, request: Request, wanted: wire.WaitForPort
) -> wire.PortAnswer:
    """Wait for a port of one."""
    wait_ms = min(wanted.wait_ms, round(MAX_WAIT * 1000))
    bounded = msgspec.structs.replace(wanted, wait_ms=wait_ms)
    return await engine.processes.wait_for_port(
        addressed.sandbox(engine, request), _id(request), bounded
    )


class LogSseForm(shapes.SseForm):
    """A log as 0.12 clients parse it: ``stdout``, ``stderr``, ``exit``, ``error``.

    Args:
        id: of the process; in every event.
        request_id: for errors.
    """

    def __init__(self, id: str, request_id: str) -> None:
        super().__init__("", request_id)
        self._id = id

    def frame(self, frame: Frame) -> bytes:
        """See `Form.frame`."""
        if frame.kind in {Kind.STARTED, Kind.END}:
            return b": started\n\n" if frame.kind == Kind.STARTED else self._flushed()
        if frame.kind == Kind.EXITED:
            code = msgspec.json.decode(frame.payload, type=dict[str, Any]).get("exit_code")
            text = f"Process exited with code {code}"
            return self._flushed() + self._event(type="exit", data=text, exitCode=code)
        return super().frame(frame)

    def _event(self, **fields: Any) -> bytes:
        return super()._event(processId=self._id, **fields)
