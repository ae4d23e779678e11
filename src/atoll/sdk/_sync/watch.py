"""The changes below a path as an iterator, and as server-sent events.

A watch is not resumed: what happened while its connection was lost is not known, and a watch that
went on as if nothing had happened would hide it. It ends with an error then; `check_changes`
tells whether anything was missed.
"""

from contextlib import closing

from atoll.errors import SandboxError
from atoll.sdk import _io, _shared, _sse
from atoll.sdk._sync.closable import ClosableStream
from atoll.sdk._sync.target import Address
from atoll.sdk._sync.transport import SILENCE_SECONDS, ConnectionLostError, chunks_of
from atoll.sdk._watch import WatchReader
from atoll.wire import ops
from atoll.wire.files import WatchEvent, WatchRequest


class WatchStream(ClosableStream[WatchEvent]):
    """An iterator of `WatchEvent`: first ``watching``, last ``stopped``.

    The watch begins with the first event. Closing the stream, or leaving an `with` block,
    ends it inside the sandbox too.
    """

    def __init__(self, address: Address, request: WatchRequest) -> None:
        super().__init__(_events(address, request))

    def sse(self) -> _io.Stream[bytes]:
        """Yield the events as the body of a ``text/event-stream`` answer, for 0.12 clients."""
        with closing(self._events) as events:
            try:
                for event in events:
                    yield _sse.encode_watch(event)
            except SandboxError as error:
                yield _sse.encode_error(error)


def _events(address: Address, request: WatchRequest) -> _io.Stream[WatchEvent]:
    address.ensure()
    call = _shared.build_call(ops.WATCH, address.params, request)
    send = address.transport.send(call, ready=address.ready, timeout=SILENCE_SECONDS)
    reader = WatchReader()
    try:
        with send as answer, closing(chunks_of(answer)) as chunks:
            for chunk in chunks:
                for event in reader.feed(chunk):
                    yield event
    except ConnectionLostError as error:
        raise _shared.lost("watch", str(error)) from error
    if not reader.finished:
        raise _shared.lost("watch", "its stream ended early")
