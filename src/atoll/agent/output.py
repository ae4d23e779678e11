"""What becomes of a command's output: counted, logged, cut at a limit, told to the callers."""

import os
from collections.abc import Callable, Sequence
from typing import Final

from atoll.wire.frames import Kind

_STREAMS: Final = (Kind.STDOUT, Kind.STDERR)


class Output:
    """Takes every chunk; hands on what callers shall see to *emit*.

    Args:
        emit: called with the frame type and the bytes for callers.
        gap: called with the first and last offset of what a log could not keep, and the reason.
    """

    def __init__(
        self, emit: Callable[[int, bytes], None], gap: Callable[[int, int, str], None]
    ) -> None:
        self._emit, self._gap = emit, gap
        self._logs: dict[int, int] = {}
        self.limit: int | None = None
        self.truncated = False
        self.totals = dict.fromkeys(_STREAMS, 0)

    def log_to(self, fds: Sequence[int]) -> None:
        """Append stdout and stderr to these two files as well."""
        self._logs = dict(zip(_STREAMS, fds, strict=False))

    def take(self, kind: int, data: bytes) -> None:
        """Count, log and hand on one chunk."""
        stream = Kind(kind)
        before = self.totals[stream]
        self.totals[stream] = before + len(data)
        self.log(stream, data)
        if self.limit is not None and before + len(data) > self.limit:
            self.truncated = True
            data = data[: max(0, self.limit - before)]
        if data:
            self._emit(stream, data)

    @property
    def logged(self) -> bool:
        """Whether there is a log."""
        return bool(self._logs)

    def log(self, kind: int, data: bytes) -> None:
        """Append to the log only: late output of background children."""
        log = self._logs.get(kind)
        view = memoryview(data)
        try:
            while log is not None and view:
                view = view[os.write(log, view) :]
        except OSError as error:
            end = self.totals[Kind(kind)]
            self._gap(end - len(view), end, f"log: {os.strerror(error.errno or 0)}")
