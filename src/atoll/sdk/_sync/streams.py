"""The events of a command as an iterator, and as server-sent events."""

from contextlib import closing
from typing import Any

from atoll.errors import SandboxError
from atoll.sdk import _io, _sse
from atoll.sdk._sync.closable import ClosableStream
from atoll.wire.process import ExecEvent, ExecRequest


class ExecStream(ClosableStream[ExecEvent]):
    """An iterator of `Started | Stdout | Stderr | Gap | Exited | Failed`.

    The command starts with the first event. Closing the stream before its end, or leaving an
    `with` block, ends the command. Leaving only the loop does not: the command runs on until
    the stream is collected, which is a `ResourceWarning`, as for files.
    """

    _runs = True

    def __init__(self, events: _io.Stream[ExecEvent], request: ExecRequest) -> None:
        super().__init__(events)
        self._request = request

    def sse(self) -> _io.Stream[bytes]:
        """Yield the events as the body of a ``text/event-stream`` answer, for 0.12 clients.

        An error is an event too, because the answer's status was sent before.
        """
        encoder = _sse.ExecEncoder(self._request)
        with closing(self._events) as events:
            try:
                for event in events:
                    yield encoder.encode(event)
            except SandboxError as error:
                yield _sse.encode_error(error)


def parse_sse_stream(source: Any) -> _io.Stream[Any]:
    """Yield the decoded events of a server-sent event stream.

    Args:
        source: a response of an HTTP client (anything with ``iter_bytes``), or an (async)
            iterable of bytes or text, cut anywhere.

    Raises:
        ValueError: the data of an event is not JSON.
    """
    chunks = source.iter_bytes() if hasattr(source, "iter_bytes") else source
    parser = _sse.SseParser()
    for chunk in _io.pieces(chunks):
        for event in parser.feed(chunk):
            yield event
