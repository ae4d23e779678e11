"""Sending and receiving at the ASGI level: one place that notices when the caller is gone.

Bodies are never collected unless they must be; `send` waits while the caller does not read, and
so does everything behind it.
"""

import asyncio
import builtins
import functools
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, TypeVar, cast

import msgspec
import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from atoll.engine.link import losses
from atoll.engine.link.link import LinkError, error_of
from atoll.errors import (
    FileTooLargeError,
    InternalError,
    SandboxError,
    TimeoutError,
    ValidationFailedError,
)
from atoll.server.shapes import Form
from atoll.wire.frames import Frame, Kind

log = structlog.get_logger(__name__)

JSON_TIME = 60.0
"""Seconds a JSON body may take to arrive: the slowest line that is of use, not a slow caller."""

_DIGITS = 18
"""Of an offset. `int` of thousands of them is an error."""

ResultT = TypeVar("ResultT")
Headers = Mapping[str, str]

AS_IT_COMES: Headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Headers of a stream: a proxy in front passes each piece on when it has it."""
Frames = AbstractAsyncContextManager[AsyncIterator[Frame]]


class Stream:
    """An answer whose body comes piece by piece. An ASGI application.

    Args:
        run: does the work; it is cancelled when the caller is gone. It calls `start` before the
            first `write`; what it raises before `start` becomes an ordinary error answer.
    """

    def __init__(self, run: Callable[["Stream"], Coroutine[Any, Any, None]]) -> None:
        self._run = run
        self._send: Send
        self.started = False

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Run the work beside a watch for the end of the connection."""
        self._send = send
        with suppress(ClientDisconnect):
            await attended(receive, self._run(self))

    async def start(self, status: int, content_type: str, headers: Headers | None = None) -> None:
        """Send the head of the answer."""
        self.started = True
        pairs = {"content-type": content_type, **(headers or {})}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, data: bytes) -> None:
        """Send a piece of the body; wait while the caller does not read."""
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """End the body properly. Without it the caller sees that it was cut."""
        await self._send({"type": "http.response.body", "body": b""})


async def attended(receive: Receive, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Return what *work* does, which is cancelled when the caller is gone.

    Raises:
        ClientDisconnect: the caller left before the end.
    """
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
        await asyncio.wait({task})
    if task.cancelled():
        raise ClientDisconnect
    return task.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_json(request: Request, limit: int) -> bytes:
    """Return the body of a JSON request.

    Raises:
        FileTooLargeError: it has more than *limit* bytes.
        RateLimitedError: it and those of all other callers are too much together.
        TimeoutError: it did not come in `JSON_TIME`.
    """
    try:
        async with asyncio.timeout(JSON_TIME):
            return await _collected(request, limit)
    except builtins.TimeoutError as error:
        raise _too_slow(JSON_TIME) from error


async def _collected(request: Request, limit: int) -> bytes:
    body = bytearray()
    with request.scope["call"].budget.share() as share:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise FileTooLargeError(
                    f"the request has more than {limit} bytes", context={"limit": limit}
                )
            share.take(len(chunk))
        return bytes(body)


async def uploaded(request: Request) -> AsyncIterator[bytes]:
    """Yield the body of an upload; a caller that goes away in the middle ends the request.

    Raises:
        TimeoutError: nothing came for `server.idle_timeout`.
    """
    idle: float = request.scope["call"].idle
    chunks = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(idle):
                chunk = await anext(chunks, None)
        except builtins.TimeoutError as error:
            raise _too_slow(idle) from error
        if chunk is None:
            return
        if chunk:
            yield chunk


def _too_slow(seconds: float) -> TimeoutError:
    return TimeoutError(
        f"the request did not come within {seconds:g} s", context={"seconds": seconds}
    )


def decode(body: bytes, kind: type[Any]) -> Any:
    """Return *body* as a request of *kind*; an empty body is an empty request.

    Raises:
        ValidationFailedError: it is not JSON, or a field is missing, unknown or of a wrong type.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.MsgspecError as error:
        raise invalid(error) from error
    except RecursionError as error:
        raise ValidationFailedError("the request is nested too deeply") from error


def decode_query(request: Request, kind: type[Any]) -> Any:
    """Return the query string as a request of *kind*; raise as `decode`."""
    given = request.query_params
    if len(given.multi_items()) != len(given):
        raise ValidationFailedError("a parameter is given twice")
    try:
        found = msgspec.convert(dict(given), type=kind, strict=False)
    except msgspec.MsgspecError as error:
        raise invalid(error) from error
    nullable = _nullable(cast("Hashable", kind))
    for name in given.keys() & nullable.keys():
        if getattr(found, nullable[name]) is None:
            raise ValidationFailedError(f"{name} is null: leave it out")
    return found


@functools.cache
def _nullable(kind: Hashable) -> Mapping[str, str]:
    """Return the name on the wire → the name in Python of the fields that may be None."""
    fields = msgspec.structs.fields(cast("type[msgspec.Struct]", kind))
    return {field.encode_name: field.name for field in fields if field.default is None}


def resumed(request: Request, from_offset: int) -> int:
    """Return the offset to go on from: what ``Last-Event-ID`` says, else *from_offset*.

    Raises:
        ValidationFailedError: the header is not an id that one of our events had.
    """
    given = request.headers.get("last-event-id")
    if given is None:
        return from_offset
    if not (given.isascii() and given.isdigit() and len(given) <= _DIGITS):
        raise ValidationFailedError(
            "Last-Event-ID is no id of an event", context={"header": "last-event-id"}
        )
    return int(given)


def invalid(error: Exception) -> ValidationFailedError:
    """Return the typed error for what msgspec refused."""
    return ValidationFailedError(f"the request is not valid: {error}", suggestion="see the API")


def ascii_json(value: Any) -> str:
    """Return JSON that fits into a header."""
    return json.dumps(msgspec.to_builtins(value))


async def pump(source: Frames, form: Form, stream: Stream, request_id: str) -> None:
    """Answer with the frames of *source* in *form*, from the first one on.

    An error that comes first is raised, so that it becomes an ordinary error answer; a later one
    is the last thing in the stream.
    """
    try:
        async with source as found:
            async for frame in found:
                if not stream.started:
                    if frame.kind == Kind.ERROR:
                        raise error_of(frame)
                    await stream.start(200, form.content_type, AS_IT_COMES)
                await stream.write(form.frame(frame))
    except SandboxError as error:
        if not stream.started:
            raise
        await stream.write(form.error(error))
    except (LinkError, msgspec.MsgspecError) as error:
        if not stream.started:
            raise
        log.warning("agent at fault", request_id=request_id, reason=str(error))
        await stream.write(form.error(losses.improper(str(error))))
    except Exception as error:
        if not stream.started:
            raise
        log.error("stream failed", request_id=request_id, exc_info=error)
        await stream.write(form.error(InternalError("the engine failed")))
    await stream.end()
