"""The log of a background process: its events as frames, in a file that the engine made.

The order of stdout and stderr, offsets and the exit are in one place, so the engine reads all of
it without this process: while it runs, after it ended, when the sandbox is gone. A frame never
crosses a multiple of `LOG_SEGMENT`: what does not fit begins the next segment, and zeros fill the
rest (no frame is of kind 0). So any segment can be given back to the file system without looking
for the end of its last frame, and an offset is found by bisecting the first frames of segments.
"""

import os
from contextlib import suppress

from atoll.agent import kernel
from atoll.wire import frames
from atoll.wire.agent import LOG_SEGMENT, log_position
from atoll.wire.frames import Kind


class LogFile:
    """Appends frames; keeps about the last *limit* bytes.

    What cannot be written (no space) becomes one GAP frame in front of what can be written again.

    Args:
        fd: an empty file, open for writing; nobody else writes to it.
        limit: bytes kept; rounded down to whole segments, two at least.
    """

    def __init__(self, fd: int, limit: int) -> None:
        self._fd = fd
        self._kept = max(2, limit // LOG_SEGMENT)
        self._at = 0
        self._freed = 0  # segments given back
        self._lost: int | None = None
        self._reason = ""

    def append(self, frame: bytes, offset: int) -> None:
        """Append *frame*, whose output starts at *offset*; events have an empty output."""
        try:
            if self._lost is not None:
                self._write(self._gap(self._lost, offset))
                self._lost = None
            self._write(frame)
        except OSError as error:
            self._reason = f"log: {os.strerror(error.errno or 0)}"
            if self._lost is None:
                self._lost = offset

    def _gap(self, start: int, end: int) -> bytes:
        body = {"from_offset": start, "to_offset": end, "reason": self._reason, "seq": 0}
        return frames.encode_json(Kind.GAP, {**body, "offset": end})

    def _write(self, frame: bytes) -> None:
        start = log_position(self._at, len(frame))
        if start != self._at:
            self._free(start // LOG_SEGMENT + 1 - self._kept)
        view, at = memoryview(frame), start
        try:
            while view:
                written = os.pwrite(self._fd, view, at)
                view, at = view[written:], at + written
        except OSError:
            with suppress(OSError):  # half a frame must not stay behind the next one
                os.ftruncate(self._fd, self._at)
            raise
        self._at = at

    def _free(self, segments: int) -> None:
        """Give back the first *segments* segments."""
        if segments > self._freed:
            length = (segments - self._freed) * LOG_SEGMENT
            kernel.punch_hole(self._fd, self._freed * LOG_SEGMENT, length)
            self._freed = segments
