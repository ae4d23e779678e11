"""What happens to a sandbox, as an iterator. Events have a cursor, so a lost stream is resumed."""

from collections.abc import Callable
from contextlib import aclosing
from typing import TypeVar

import msgspec

from atoll.sdk import _aio, _shared
from atoll.sdk._async.closable import ClosableStream
from atoll.sdk._async.target import Address
from atoll.sdk._async.transport import SILENCE_SECONDS, ConnectionLostError, chunks_of
from atoll.sdk._events import EventReader
from atoll.wire import ops
from atoll.wire.base import Request, Result
from atoll.wire.operation import Op
from atoll.wire.sandbox import EventsQuery, SandboxEvent

QueryT = TypeVar("QueryT", bound=Request)
EventT = TypeVar("EventT", bound=Result)


class EventStream(ClosableStream[SandboxEvent]):
    """An async iterator of `SandboxEvent`: those that are kept, then, if followed, new ones.

    Reading it wakes nothing. Closing the stream, or leaving an `async with` block, ends it.
    """

    def __init__(self, address: Address, request: EventsQuery) -> None:
        super().__init__(followed(address, ops.EVENTS, request, lambda event: event.seq))


async def followed(
    address: Address,
    op: Op[QueryT, EventT],
    request: QueryT,
    cursor: Callable[[EventT], int | str],
) -> _aio.Stream[EventT]:
    """Yield the events that *request* asks for; a stream that is lost goes on where it was.

    Args:
        address: of the sandbox.
        op: answers with events, and takes what comes behind one as `after`.
        request: what is asked for at first.
        cursor: returns what stands for an event in `after`.

    Raises:
        SandboxError: the engine refused, or was away for too long.
    """
    finished = False
    away = _shared.Backoff(_aio.now() + _shared.RECONNECT_SECONDS, _aio.jitter)
    while not finished:
        reader = EventReader(op.result)
        try:
            async with aclosing(_once(address, op, request, reader)) as events:
                async for event in events:
                    request = msgspec.structs.replace(request, after=cursor(event))
                    away = _shared.Backoff(_aio.now() + _shared.RECONNECT_SECONDS, _aio.jitter)
                    yield event
        except ConnectionLostError as error:
            delay = away.wait(_aio.now())
            if delay is None:
                raise _shared.lost(op.name.replace("_", " "), str(error)) from error
            await _aio.sleep(delay)
        finished = reader.finished


async def _once(
    address: Address, op: Op[QueryT, EventT], request: QueryT, reader: EventReader[EventT]
) -> _aio.Stream[EventT]:
    call = _shared.build_call(op, address.params, request)
    send = address.transport.send(call, ready=address.ready, timeout=SILENCE_SECONDS)
    async with send as answer, aclosing(chunks_of(answer)) as chunks:
        async for chunk in chunks:
            for event in reader.feed(chunk):
                yield event
    if not reader.finished:
        raise ConnectionLostError("the stream ended early")
