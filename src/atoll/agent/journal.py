"""The record of one operation's events: sequence numbers, offsets, and what is kept for replay.

Output is kept as the frames that were sent. The window is counted with a charge per frame, so
that a command that writes single bytes cannot make the record larger than one that writes blocks.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from atoll.wire import frames
from atoll.wire.agent import REPLAY_WINDOW
from atoll.wire.frames import Kind

FRAME_CHARGE: Final = 128
"""Bytes a kept frame costs besides its payload: object, header and queue slot."""

_HEADER: Final = 5
_OUTPUT: Final = (Kind.STDOUT, Kind.STDERR, Kind.RESULT)


class Journal:
    """Numbers events and keeps the last `window` bytes of output."""

    def __init__(self, window: int = REPLAY_WINDOW) -> None:
        self.seq = 0
        self.offset = 0
        self.charge = 0  # of everything so far, kept or not
        self._window = window
        self._kept: deque[bytes] = deque()
        self._forgotten = 0  # the part of `charge` that is no longer kept
        self._start: bytes = b""

    def forget(self) -> None:
        """Keep no output: it is read from a log."""
        self._window = 0

    def started(self, pid: int) -> bytes:
        """Return the STARTED frame; it is kept for good."""
        self._start = self._event(Kind.STARTED, {"pid": pid})
        return self._start

    def output(self, kind: int, data: bytes) -> bytes:
        """Return the frame of a piece of output."""
        frame = frames.encode_output(kind, self.seq, self.offset, data)
        self.seq += 1
        self.offset += len(data)
        self._keep(frame)
        return frame

    def exited(self, record: dict[str, Any]) -> bytes:
        """Return the EXITED frame."""
        return self._event(Kind.EXITED, record)

    def kept(self) -> Iterator[bytes]:
        """Yield the frames that are still known, in order."""
        if self._start:
            yield self._start
        yield from self._kept

    def _event(self, kind: int, body: dict[str, Any]) -> bytes:
        frame = frames.encode_json(kind, {**body, "seq": self.seq, "offset": self.offset})
        self.seq += 1
        return frame

    def _keep(self, frame: bytes) -> None:
        self._kept.append(frame)
        self.charge += len(frame) + FRAME_CHARGE
        while self.charge - self._forgotten > self._window and len(self._kept) > 1:
            self._forgotten += len(self._kept.popleft()) + FRAME_CHARGE


def resume(kept: Iterable[bytes], from_offset: int) -> Iterator[bytes]:
    """Yield the frames a caller needs who has everything before *from_offset*.

    What is no longer kept becomes one GAP; a frame that is known in part is cut.
    """
    at = from_offset
    for frame in kept:
        if frame[0] not in _OUTPUT:
            if frame[0] == Kind.EXITED and (end := _event_offset(frame)) > at:
                yield missing(at, end, 0)
            yield frame
            continue
        seq, start, data = frames.decode_output(frame[_HEADER:])
        if start > at:
            yield missing(at, start, seq)
        if start + len(data) > at:
            cut = max(0, at - start)
            yield frames.encode_output(frame[0], seq, start + cut, data[cut:]) if cut else frame
            at = start + len(data)


def missing(start: int, end: int, seq: int) -> bytes:
    """Return the GAP frame for output that is no longer kept for this caller."""
    body = {"from_offset": start, "to_offset": end, "reason": "no longer kept", "seq": seq}
    return frames.encode_json(Kind.GAP, {**body, "offset": end})


def _event_offset(frame: bytes) -> int:
    return int(json.loads(frame[_HEADER:])["offset"])
