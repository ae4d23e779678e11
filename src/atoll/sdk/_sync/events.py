"""What happens to a sandbox, as an iterator. Events are numbered, so a lost stream is resumed."""

from contextlib import closing

from atoll.sdk import _io, _shared
from atoll.sdk._sync.closable import ClosableStream
from atoll.sdk._sync.target import Address
from atoll.sdk._sync.transport import SILENCE_SECONDS, ConnectionLostError, chunks_of
from atoll.sdk._events import EventReader
from atoll.wire import ops
from atoll.wire.sandbox import EventsQuery, SandboxEvent


class EventStream(ClosableStream[SandboxEvent]):
    """An iterator of `SandboxEvent`: those that are kept, then, if followed, new ones.

    Reading it wakes nothing. Closing the stream, or leaving an `with` block, ends it.
    """

    def __init__(self, address: Address, request: EventsQuery) -> None:
        super().__init__(_events(address, request))


def _events(address: Address, request: EventsQuery) -> _io.Stream[SandboxEvent]:
    after, finished = request.after, False
    away = _shared.Backoff(_io.now() + _shared.RECONNECT_SECONDS, _io.jitter)
    while not finished:
        reader = EventReader(SandboxEvent)
        query = EventsQuery(after=after, follow=request.follow)
        try:
            with closing(_once(address, query, reader)) as events:
                for event in events:
                    after = event.seq
                    away = _shared.Backoff(_io.now() + _shared.RECONNECT_SECONDS, _io.jitter)
                    yield event
        except ConnectionLostError as error:
            delay = away.wait(_io.now())
            if delay is None:
                raise _shared.lost("events", str(error)) from error
            _io.sleep(delay)
        finished = reader.finished


def _once(
    address: Address, query: EventsQuery, reader: EventReader[SandboxEvent]
) -> _io.Stream[SandboxEvent]:
    call = _shared.build_call(ops.EVENTS, address.params, query)
    send = address.transport.send(call, ready=address.ready, timeout=SILENCE_SECONDS)
    with send as answer, closing(chunks_of(answer)) as chunks:
        for chunk in chunks:
            for event in reader.feed(chunk):
                yield event
    if not reader.finished:
        raise ConnectionLostError("the stream ended early")
