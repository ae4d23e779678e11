"""The log of a process whose agent takes no descriptors: written here, from what the agent sends.

Same file, same format, same readers as a log that an agent writes itself (`processes.logs`). What
the file holds says where to go on: after a break, or with the next engine, the agent is asked for
what comes behind it, and answers with what it still keeps (`REPLAY_WINDOW`) and a GAP for the rest.
"""

import os
from contextlib import suppress
from typing import Final, Self

from atoll.engine.link.link import LinkError
from atoll.engine.processes.logs import LOGGED, OUTPUT, LogReader, check, end_of, start_of
from atoll.errors import ProcessError
from atoll.host import linux
from atoll.host.threads import run_to_end
from atoll.wire import frames
from atoll.wire.agent import LOG_SEGMENT, log_position
from atoll.wire.frames import Frame, Kind

_ENDS: Final = frozenset({Kind.EXITED, Kind.ERROR})


class LogCopy:
    """Appends frames to one log; nobody else writes to it.

    What cannot be written (no space) becomes one GAP in front of what can be written again.

    Args:
        fd: the log, open for reading and writing; it belongs to the copy.
        limit: bytes kept; rounded down to whole segments, two at least.

    Attributes:
        offset: of the output that follows what is here.
    """

    def __init__(self, fd: int, limit: int) -> None:
        self._fd = fd
        self._kept = max(2, limit // LOG_SEGMENT)
        self._begun = self._ended = False
        self._lost: int | None = None
        self._reason = ""
        self.offset = 0
        self._at = self._resumed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        os.close(self._fd)

    async def append(self, frame: Frame) -> None:
        """Append *frame* if it belongs in a log and is not there yet.

        Raises:
            LinkError: no proper agent sends that.
        """
        if frame.kind not in LOGGED or self._ended:
            return
        try:
            check(frame)
            data = frames.encode(frame.kind, frame.payload)
        except (ProcessError, frames.FrameError) as error:
            raise LinkError(f"the agent sent something malformed ({error})") from error
        if len(data) > LOG_SEGMENT:
            raise LinkError(f"the agent sent {len(data)} bytes as one event")
        if self._is_new(frame):
            await run_to_end(self._append, data, self._start_of(frame))
            self._note(frame)

    def _is_new(self, frame: Frame) -> bool:
        if frame.kind == Kind.STARTED:
            return not self._begun
        return frame.kind in _ENDS or end_of(frame) > self.offset

    def _start_of(self, frame: Frame) -> int:
        return start_of(frame) if frame.kind in OUTPUT else self.offset

    def _note(self, frame: Frame) -> None:
        self._begun = True
        self._ended = frame.kind in _ENDS
        self.offset = max(self.offset, end_of(frame))

    def _append(self, data: bytes, start: int) -> None:
        try:
            if self._lost is not None:
                self._write(_gap(self._lost, start, self._reason))
                self._lost = None
            self._write(data)
        except OSError as error:
            self._reason = f"log: {os.strerror(error.errno or 0)}"
            if self._lost is None:
                self._lost = start

    def _write(self, data: bytes) -> None:
        at = log_position(self._at, len(data))
        if at != self._at:
            self._give_back(at // LOG_SEGMENT + 1 - self._kept)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._fd, memoryview(data)[written:], at + written)
        except OSError:
            with suppress(OSError):  # half a frame must not stay behind the next one
                os.ftruncate(self._fd, self._at)
            raise
        self._at = at + len(data)

    def _give_back(self, segments: int) -> None:
        """Free the segment before number *segments*: those before it went as this log grew."""
        if segments > 0:
            linux.punch_hole(self._fd, (segments - 1) * LOG_SEGMENT, LOG_SEGMENT)

    def _resumed(self) -> int:
        """Return where what is whole ends; half a frame is of an engine that was killed."""
        reader = LogReader(self._fd)
        for before in (0, 1):  # that half may be all there is of the last segment
            reader.seek_last_segment(before)
            with suppress(ProcessError):
                for frame in reader.rest():
                    self._note(frame)
            if self._begun:
                break
        os.ftruncate(self._fd, reader.position)
        return reader.position


def _gap(start: int, end: int, reason: str) -> bytes:
    body = {"from_offset": start, "to_offset": end, "reason": reason, "seq": 0, "offset": end}
    return frames.encode_json(Kind.GAP, body)
