"""The events of a command as an iterator, and as server-sent events."""

from contextlib import aclosing
from typing import Any

from atoll.errors import SandboxError
from atoll.sdk import _aio, _sse
from atoll.sdk._async.closable import ClosableStream
from atoll.wire.process import ExecEvent, ExecRequest


class ExecStream(ClosableStream[ExecEvent]):
    """An async iterator of `Started | Stdout | Stderr | Gap | Exited | Failed`.

    The command starts with the first event. Closing the stream before its end, or leaving an
    `async with` block, ends the command. Leaving only the loop does not: the command runs on until
    the stream is collected, which is a `ResourceWarning`, as for files.
    """

    _runs = True

    def __init__(self, events: _aio.Stream[ExecEvent], request: ExecRequest) -> None:
        super().__init__(events)
        self._request = request

    async def sse(self) -> _aio.Stream[bytes]:
        """Yield the events as the body of a ``text/event-stream`` answer, for 0.12 clients.

        An error is an event too, because the answer's status was sent before.
        """
        encoder = _sse.ExecEncoder(self._request)
        async with aclosing(self._events) as events:
            try:
                async for event in events:
                    yield encoder.encode(event)
            except SandboxError as error:
                yield _sse.encode_error(error)


async def parse_sse_stream(source: Any) -> _aio.Stream[Any]:
    """Yield the decoded events of a server-sent event stream.

    Args:
        source: a response of an HTTP client (anything with ``aiter_bytes``), or an (async)
            iterable of bytes or text, cut anywhere.

    Raises:
        ValueError: the data of an event is not JSON.
    """
    chunks = source.aiter_bytes() if hasattr(source, "aiter_bytes") else source
    parser = _sse.SseParser()
    async for chunk in _aio.pieces(chunks):
        for event in parser.feed(chunk):
            yield event
