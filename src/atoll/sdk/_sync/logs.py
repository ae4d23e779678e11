"""The log of a background process as a stream that survives lost connections."""

from contextlib import closing, suppress

from msgspec import structs

from atoll.errors import SandboxError
from atoll.sdk import _io, _shared
from atoll.sdk._sync.closable import ClosableStream
from atoll.sdk._sync.target import Address
from atoll.sdk._sync.transport import SILENCE_SECONDS, ConnectionLostError, chunks_of
from atoll.sdk._logs import LogEncoder, LogReader
from atoll.wire import ops
from atoll.wire.process import ExecEvent, LogsQuery


class LogStream(ClosableStream[ExecEvent | None]):
    """An iterator of `Started | Stdout | Stderr | Gap | Exited | Failed`.

    Closing it does nothing to the process.
    """

    def __init__(self, address: Address, process_id: str, query: LogsQuery) -> None:
        self._id = process_id
        self._reader = LogReader(query.from_offset)
        super().__init__(_events(address, process_id, query, self._reader))

    @property
    def offset(self) -> int:
        """Where to go on later: the offset behind the last event."""
        return self._reader.position

    def __next__(self) -> ExecEvent:
        while (event := super().__next__()) is None:
            pass
        return event

    def with_pauses(self) -> _io.Stream[ExecEvent | None]:
        """Return the events, with None where nothing more came for a moment."""
        return self._events

    def sse(self) -> _io.Stream[bytes]:
        """Yield the events as the body of a ``text/event-stream`` answer, for 0.12 clients."""
        encoder = LogEncoder(self._id)
        with closing(self._events) as events:
            try:
                for event in events:
                    if event is not None and (data := encoder.encode(event)):
                        yield data
            except SandboxError as error:
                yield encoder.error(error.message)


def _events(
    address: Address, process_id: str, query: LogsQuery, reader: LogReader
) -> _io.Stream[ExecEvent | None]:
    began, lost = _io.now(), None
    params = address.params | {"process": process_id}
    while not reader.finished:
        with suppress(ConnectionLostError):
            rest = _rest(query, reader, began)
            send = address.transport.send(
                _shared.build_call(ops.STREAM_PROCESS_LOGS, params, rest),
                patience=_shared.RECONNECT_SECONDS if lost else None,
                timeout=SILENCE_SECONDS,
            )
            with send as answer, closing(chunks_of(answer)) as chunks:
                for chunk in chunks:
                    for event in reader.feed(chunk):
                        yield event
                    if reader.quiet:
                        yield None
        if not reader.finished:
            lost = _io.now() if reader.progressed() or lost is None else lost
            if _io.now() - lost > SILENCE_SECONDS:
                raise _shared.lost("stream_process_logs", "its stream broke again and again")
            _io.sleep(_shared.Backoff.FIRST)


def _rest(query: LogsQuery, reader: LogReader, began: float) -> LogsQuery:
    if query.limit_ms is not None:
        spent = round((_io.now() - began) * 1000)
        query = structs.replace(query, limit_ms=max(0, query.limit_ms - spent))
    return structs.replace(query, from_offset=reader.resume())
