"""What becomes of a command's output: counted, cut at a limit, handed on."""

from collections.abc import Callable
from typing import Final

from atoll.wire.frames import Kind

_STREAMS: Final = (Kind.STDOUT, Kind.STDERR)


class Output:
    """Takes every chunk; hands on what callers shall see to *emit*, with the frame type."""

    def __init__(self, emit: Callable[[int, bytes], None]) -> None:
        self._emit = emit
        self.limit: int | None = None
        self.truncated = False
        self.totals = dict.fromkeys(_STREAMS, 0)

    def take(self, kind: int, data: bytes) -> None:
        """Count and hand on one chunk."""
        stream = Kind(kind)
        before = self.totals[stream]
        self.totals[stream] = before + len(data)
        if self.limit is not None and before + len(data) > self.limit:
            self.truncated = True
            data = data[: max(0, self.limit - before)]
        if data:
            self._emit(stream, data)
