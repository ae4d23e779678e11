"""Code over HTTP: contexts as JSON, runs as frames, events of 0.12, NDJSON, or one JSON result."""

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request

from atoll.engine.commands import interpreter
from atoll.engine.engine import Engine
from atoll.engine.link.link import error_of
from atoll.errors import SandboxError
from atoll.server import addressed, answer, shapes
from atoll.server.answer import Stream
from atoll.wire import frames, ids
from atoll.wire import interpreter as wire
from atoll.wire.base import Done, Empty
from atoll.wire.code_stream import CodeEvent, CodeReader, Collector, event_shape, timed_out
from atoll.wire.frames import Frame, Kind


async def create(
    engine: Engine, request: Request, wanted: wire.CreateContextRequest
) -> wire.ContextInfo:
    """Make a context."""
    return await interpreter.create(addressed.sandbox(engine, request), wanted)


async def listing(engine: Engine, request: Request, wanted: Empty) -> wire.ContextList:
    """Return all contexts."""
    return await interpreter.listing(addressed.sandbox(engine, request))


async def delete(engine: Engine, request: Request, wanted: Empty) -> Done:
    """End one."""
    await interpreter.delete(addressed.sandbox(engine, request), request.path_params["context"])
    return Done()


async def interrupt(engine: Engine, request: Request, wanted: Empty) -> wire.Interrupted:
    """Interrupt what runs in one."""
    return await interpreter.interrupt(
        addressed.sandbox(engine, request), request.path_params["context"]
    )


async def variables(engine: Engine, request: Request, wanted: Empty) -> wire.VariableList:
    """Return the variables of one."""
    return await interpreter.variables(
        addressed.sandbox(engine, request), request.path_params["context"]
    )


async def run(engine: Engine, request: Request, wanted: wire.RunCodeRequest) -> Stream:
    """Run code."""
    key = request.headers.get("idempotency-key")
    accept = request.headers.get("accept", "")
    streamed = any(kind in accept for kind in (frames.CONTENT_TYPE, shapes.SSE, shapes.NDJSON))
    source = interpreter.run(
        addressed.sandbox(engine, request),
        wanted,
        ids.check_operation_id(key) if key else secrets.token_hex(12),
        cancel_on_drop=key is None,
        buffered=not streamed,
    )
    request_id: str = request.scope["request_id"]
    if not streamed:
        return Stream(lambda stream: _whole(source, wanted, stream))
    form: shapes.Form
    if frames.CONTENT_TYPE in accept:
        form = shapes.FramesForm(request_id)
    elif shapes.SSE in accept:
        form = CodeForm(shapes.SSE, b"data: %s\n\n", request_id)
    else:
        form = CodeForm(shapes.NDJSON, b"%s\n", request_id)
    return Stream(lambda stream: answer.pump(source, form, stream, request_id))


async def _whole(source: answer.Frames, wanted: wire.RunCodeRequest, stream: Stream) -> None:
    reader, collector = CodeReader(), Collector()
    async with source as found:
        async for frame in found:
            if frame.kind == Kind.ERROR:
                raise error_of(frame)
            for event in reader.take(frame):
                collector.add(event)
    result = collector.result(wanted.code, wanted.context, datetime.now(UTC))
    if result.timed_out:
        raise timed_out(result, with_result=True)
    await stream.start(200, shapes.JSON)
    await stream.write(msgspec.json.encode(result.to_dict()))
    await stream.end()


class CodeForm:
    """Events of a run in the shapes that 0.12 clients parse, one JSON object each.

    Args:
        content_type: of the answer.
        pattern: what stands around each object.
        request_id: for errors.
    """

    def __init__(self, content_type: str, pattern: bytes, request_id: str) -> None:
        self.content_type = content_type
        self._pattern, self._request_id = pattern, request_id
        self._reader = CodeReader()

    def frame(self, frame: Frame) -> bytes:
        """See `Form.frame`."""
        if frame.kind == Kind.HEARTBEAT:
            return b": heartbeat\n\n" if self.content_type == shapes.SSE else b""
        if frame.kind == Kind.ERROR:
            return self.error(error_of(frame))
        return b"".join(map(self._encoded, self._events(frame)))

    def _events(self, frame: Frame) -> Iterator[CodeEvent]:
        yield from self._reader.take(frame)

    def _encoded(self, event: CodeEvent) -> bytes:
        return self._wrapped(event_shape(event))

    def error(self, error: SandboxError) -> bytes:
        """See `Form.error`: the shape of an exception, with the envelope beside it."""
        body = shapes.envelope(error, self._request_id)
        shape = {"type": "error", "ename": error.wire_code, "evalue": error.message}
        return self._wrapped({**shape, "traceback": [], **body})

    def _wrapped(self, shape: dict[str, Any]) -> bytes:
        return self._pattern % msgspec.json.encode(shape) if shape else b""
