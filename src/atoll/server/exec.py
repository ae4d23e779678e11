"""Commands over HTTP: start, attach, feed, signal. Frames pass through; see `shapes` for forms."""

import secrets

import msgspec
from starlette.requests import Request

from atoll.engine.commands import calls
from atoll.engine.engine import Engine
from atoll.engine.link.link import LinkError, error_of
from atoll.engine.sandbox import Sandbox
from atoll.errors import InvalidCommandError
from atoll.server import addressed, answer, shapes
from atoll.server.answer import Stream
from atoll.server.buffered import Buffered, pieces
from atoll.server.spool import Spool, read_frames, spooled
from atoll.wire import frames, ids, ops, process
from atoll.wire.agent import OUTPUT_LIMIT
from atoll.wire.frames import Kind


async def run(engine: Engine, request: Request) -> Stream:
    """Start the command of an exec request (or attach to it, when its key is known)."""
    limits = engine.settings.server
    spool = spooled(engine, limits.max_stdin)
    try:
        framed = request.headers.get("content-type", "").startswith(frames.CONTENT_TYPE)
        if framed:
            body = await read_frames(request, spool)
        else:
            body = await answer.read_json(request, limits.max_body)
        wanted: process.ExecRequest = answer.decode(body, process.ExecRequest)
        check_command(wanted.command)
        offset = answer.resumed(request, wanted.from_offset)
        wanted = msgspec.structs.replace(wanted, from_offset=offset)
    except BaseException:
        spool.close()
        raise
    return Stream(lambda stream: _run(engine, request, wanted, spool, stream))


async def _run(
    engine: Engine, request: Request, wanted: process.ExecRequest, spool: Spool, stream: Stream
) -> None:
    with spool:
        key = request.headers.get("idempotency-key")
        sandbox = addressed.sandbox(engine, request)
        source = calls.exec(
            sandbox,
            wanted,
            ids.check_operation_id(key) if key else secrets.token_hex(12),
            cancel_on_drop=key is None,
            stdin=spool.chunks() if wanted.stdin else None,
        )
        await _deliver(engine, request, sandbox, source, wanted, stream)


async def attach(engine: Engine, request: Request) -> Stream:
    """Go on with the output of an operation from an offset on."""
    wanted: ops.Attach = answer.decode_query(request, ops.Attach)
    sandbox = addressed.sandbox(engine, request)
    operation = ids.check_operation_id(request.path_params["operation"])
    source = calls.attach(sandbox, operation, answer.resumed(request, wanted.from_offset))
    shown = process.ExecRequest(command="")
    return Stream(lambda stream: _deliver(engine, request, sandbox, source, shown, stream))


async def feed(engine: Engine, request: Request) -> None:
    """Give a running operation a piece of standard input."""
    wanted: ops.Stdin = answer.decode_query(request, ops.Stdin)
    sandbox = addressed.sandbox(engine, request)
    operation = ids.check_operation_id(request.path_params["operation"])
    await calls.feed(sandbox, operation, answer.uploaded(request), close=wanted.close)


async def _deliver(
    engine: Engine,
    request: Request,
    sandbox: Sandbox,
    source: answer.Frames,
    wanted: process.ExecRequest,
    stream: Stream,
) -> None:
    request_id: str = request.scope["request_id"]
    accept = request.headers.get("accept", "")
    if frames.CONTENT_TYPE in accept:
        await answer.pump(source, shapes.FramesForm(request_id), stream, request_id)
    elif shapes.SSE in accept:
        await answer.pump(source, shapes.SseForm(wanted.command, request_id), stream, request_id)
    elif shapes.NDJSON in accept:
        await answer.pump(source, shapes.NdjsonForm(request_id), stream, request_id)
    else:
        session = wanted.session or calls.default_session(sandbox, wanted)
        buffer = Buffered(wanted.command, session, lambda: spooled(engine, OUTPUT_LIMIT))
        await _buffered(source, buffer, stream, request_id)


async def _buffered(
    source: answer.Frames, buffer: Buffered, stream: Stream, request_id: str
) -> None:
    with buffer:
        async with source as found:
            async for frame in found:
                if frame.kind == Kind.ERROR:
                    raise error_of(frame)
                if frame.kind == Kind.EXITED:
                    status, body = buffer.answer(frame, request_id)
                    break
                await buffer.frame(frame)
            else:
                raise LinkError("the agent told no end of the command")
        await stream.start(status, shapes.JSON)
        async for piece in pieces(body):
            await stream.write(piece)
        await stream.end()


def check_command(command: str | list[str]) -> None:
    """Refuse what no shell and no kernel can run.

    Raises:
        InvalidCommandError: it is empty, or has a NUL byte.
    """
    parts = [command] if isinstance(command, str) else command
    if not parts or not parts[0].strip():
        raise InvalidCommandError("the command is empty")
    if any("\0" in part for part in parts):
        raise InvalidCommandError(
            "the command has a NUL byte", suggestion="pass bytes by stdin or a file"
        )
