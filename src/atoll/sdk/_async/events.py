"""What happens to a sandbox, as an iterator. Events are numbered, so a lost stream is resumed."""

from contextlib import aclosing

from atoll.sdk import _aio, _shared
from atoll.sdk._async.closable import ClosableStream
from atoll.sdk._async.target import Address
from atoll.sdk._async.transport import SILENCE_SECONDS, ConnectionLostError, chunks_of
from atoll.sdk._events import EventReader
from atoll.wire import ops
from atoll.wire.sandbox import EventsQuery, SandboxEvent


class EventStream(ClosableStream[SandboxEvent]):
    """An async iterator of `SandboxEvent`: those that are kept, then, if followed, new ones.

    Reading it wakes nothing. Closing the stream, or leaving an `async with` block, ends it.
    """

    def __init__(self, address: Address, request: EventsQuery) -> None:
        super().__init__(_events(address, request))


async def _events(address: Address, request: EventsQuery) -> _aio.Stream[SandboxEvent]:
    after, finished = request.after, False
    away = _shared.Backoff(_aio.now() + _shared.RECONNECT_SECONDS, _aio.jitter)
    while not finished:
        reader = EventReader(SandboxEvent)
        query = EventsQuery(after=after, follow=request.follow)
        try:
            async with aclosing(_once(address, query, reader)) as events:
                async for event in events:
                    after = event.seq
                    away = _shared.Backoff(_aio.now() + _shared.RECONNECT_SECONDS, _aio.jitter)
                    yield event
        except ConnectionLostError as error:
            delay = away.wait(_aio.now())
            if delay is None:
                raise _shared.lost("events", str(error)) from error
            await _aio.sleep(delay)
        finished = reader.finished


async def _once(
    address: Address, query: EventsQuery, reader: EventReader[SandboxEvent]
) -> _aio.Stream[SandboxEvent]:
    call = _shared.build_call(ops.EVENTS, address.params, query)
    send = address.transport.send(call, ready=address.ready, timeout=SILENCE_SECONDS)
    async with send as answer, aclosing(chunks_of(answer)) as chunks:
        async for chunk in chunks:
            for event in reader.feed(chunk):
                yield event
    if not reader.finished:
        raise ConnectionLostError("the stream ended early")
