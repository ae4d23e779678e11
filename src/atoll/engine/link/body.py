"""The body of a file on its way through the engine: payloads of DATA frames, as they come. Pure.

A frame of a body may have a megabyte. It is never put together here: a piece is handed on as soon
as it is read, without a copy (measured: twice the rate of whole frames).
"""

from collections.abc import Iterator

from atoll.wire import frames
from atoll.wire.frames import Frame, Kind

_HEADER = 5


class Body:
    """Takes the bytes of a connection apart, from a frame's beginning on."""

    def __init__(self) -> None:
        self._head = bytearray()  # of the frame that comes next; all of it unless it is DATA
        self._left = 0  # bytes of the DATA frame under way

    def feed(self, data: bytes) -> Iterator[bytes | Frame]:
        """Yield pieces of the body, and frames of other kinds.

        Raises:
            FrameError: a frame over the limit.
        """
        view = memoryview(data)
        while view:
            if self._left:
                piece = view[: self._left]
                self._left -= len(piece)
                view = view[len(piece) :]
                yield data if len(piece) == len(data) else bytes(piece)
                continue
            taken = self._missing()
            self._head += view[:taken]
            view = view[taken:]
            yield from self._complete()

    def _missing(self) -> int:
        if len(self._head) < _HEADER:
            return _HEADER - len(self._head)
        return _HEADER + self._length() - len(self._head)

    def _length(self) -> int:
        return int.from_bytes(self._head[1:_HEADER], "big")

    def _complete(self) -> Iterator[Frame]:
        """Act on a header that is complete, yield a frame that is."""
        if len(self._head) < _HEADER:
            return
        if (length := self._length()) > frames.MAX_FRAME:
            raise frames.FrameError(f"frame of {length} bytes is over {frames.MAX_FRAME}")
        kind = self._head[0]
        if kind == Kind.DATA:
            self._left = length
            self._head.clear()
        elif not self._missing():
            payload = bytes(self._head[_HEADER:])
            self._head.clear()
            yield Frame(kind, payload)
