"""Logs of background processes: files of the engine, written by the agent, read by the engine.

The format is that of `atoll.wire.agent.LOG_SEGMENT`. They are outside of the sandbox's root, so
they are read while the sandbox sleeps as well as while it runs. The writer is not trusted: what is
malformed ends the reading of that log and nothing else.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Self

import msgspec

from atoll.engine.processes.records import ProcessRecord
from atoll.errors import ProcessError
from atoll.host import linux
from atoll.wire import frames
from atoll.wire.agent import LOG_SEGMENT
from atoll.wire.frames import Frame, Kind
from atoll.wire.records import Exit, Gap

_HEADER = 5
OUTPUT = frozenset({Kind.STDOUT, Kind.STDERR})
LOGGED = OUTPUT | {Kind.STARTED, Kind.GAP, Kind.EXITED, Kind.ERROR}


class ProcessLogs:
    """The logs of all sandboxes.

    Args:
        base: directory with one directory for each life of a sandbox.
    """

    def __init__(self, base: Path) -> None:
        self._base = base

    def path(self, record: ProcessRecord) -> Path:
        """Return where the log of a process is."""
        return self._base / record.layer_id / record.uid

    def create(self, record: ProcessRecord) -> int:
        """Make the empty log and return it, open for writing."""
        path = self.path(record)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def reopen(self, record: ProcessRecord) -> int:
        """Return the log, open for reading and writing; of one that is gone, a file without name."""
        try:
            return os.open(self.path(record), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return os.memfd_create("log")

    def open(self, record: ProcessRecord) -> "LogReader":
        """Return a reader from the beginning of what is kept; a log that is gone is empty."""
        try:
            fd = os.open(self.path(record), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return LogReader(fd)

    def exit(self, record: ProcessRecord) -> Exit | None:
        """Return how the process ended, if its log has that."""
        with self.open(record) as log:
            log.seek_last_segment()
            return next((exit_of(f) for f in log.rest() if f.kind == Kind.EXITED), None)

    def tail(self, record: ProcessRecord, size: int) -> bytes:
        """Return about the last *size* bytes of output."""
        with self.open(record) as log:
            log.seek_last_segment()
            found = (frames.decode_output(f.payload).data for f in log.rest() if f.kind in OUTPUT)
            return b"".join(found)[-size:]

    def started(self, record: ProcessRecord) -> bool:
        """Whether the agent wrote anything."""
        try:
            return self.path(record).stat().st_size > 0
        except FileNotFoundError:
            return False

    def delete(self, record: ProcessRecord) -> None:
        """Remove the log."""
        self.path(record).unlink(missing_ok=True)
        with suppress(OSError):  # others are there
            self.path(record).parent.rmdir()

    def delete_all(self, layer_id: str) -> None:
        """Remove the logs of a sandbox's life."""
        shutil.rmtree(self._base / layer_id, ignore_errors=True)

    def lives(self) -> set[str]:
        """Return every life of a sandbox that has logs."""
        return {path.name for path in self._base.iterdir()} if self._base.exists() else set()

    def shrink(self, records: Sequence[ProcessRecord], limit: int) -> None:
        """Give back the oldest output until all logs together take *limit* bytes.

        Args:
            records: of one sandbox; finished ones first, the oldest first of all.
            limit: bytes; the last segment of a log always stays.
        """
        files = [path for record in records if (path := self.path(record)).exists()]
        excess = sum(_used(path) for path in files) - limit
        for path in files:
            if excess <= 0:
                return
            excess -= _shrink(path, excess)


def _used(path: Path) -> int:
    return path.stat().st_blocks * 512


def _shrink(path: Path, excess: int) -> int:
    """Free whole segments from the head until *excess* bytes are free; return how many are."""
    before = _used(path)
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        last = max(0, os.fstat(fd).st_size - 1) // LOG_SEGMENT
        for segment in range(last):
            if before - os.fstat(fd).st_blocks * 512 >= excess:
                break
            linux.punch_hole(fd, segment * LOG_SEGMENT, LOG_SEGMENT)
        return before - os.fstat(fd).st_blocks * 512
    finally:
        os.close(fd)


class LogReader:
    """Reads the frames of one log, also while it is written and while its head is given back.

    Args:
        fd: the log; it belongs to the reader.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @property
    def more(self) -> bool:
        """Whether there is something behind the position, though perhaps not a whole frame."""
        return self._size > self._at

    @property
    def position(self) -> int:
        """Where the next frame begins."""
        return self._at

    @property
    def _size(self) -> int:
        return os.fstat(self._fd).st_size

    def seek(self, offset: int) -> None:
        """Go to a frame at or before *offset*, or to the first that is kept."""
        low, high = 0, self._last_segment
        while low < high:  # the last segment that does not begin after the offset
            middle = (low + high + 1) // 2
            if self._start_of(middle) > offset:
                high = middle - 1
            else:
                low = middle
        self._at = low * LOG_SEGMENT

    def seek_last_segment(self, before: int = 0) -> None:
        """Go to the beginning of the last segment, or that many segments before it."""
        self._at = max(0, self._last_segment - before) * LOG_SEGMENT

    @property
    def _last_segment(self) -> int:
        return max(0, self._size - 1) // LOG_SEGMENT

    def _start_of(self, segment: int) -> float:
        """Return the offset of a segment's first frame.

        Below all if the segment was given back, beyond all if it is not yet written.
        """
        start = segment * LOG_SEGMENT
        head = os.pread(self._fd, _HEADER, start)
        if not head.strip(b"\0"):
            return -1
        length = _HEADER + int.from_bytes(head[1:], "big")
        data = os.pread(self._fd, min(length, LOG_SEGMENT), start)
        return next((start_of(frame) for frame in _parse(data)), inf)

    def rest(self) -> Iterator[Frame]:
        """Yield all whole frames that are there."""
        while found := self.read():
            yield from found

    def read(self) -> list[Frame]:
        """Return the next whole frames, up to the end of a segment; none: nothing more is there.

        Raises:
            ProcessError: the log is malformed.
        """
        while True:
            segment = self._at // LOG_SEGMENT
            end = (segment + 1) * LOG_SEGMENT
            size = self._size
            data = (
                os.pread(self._fd, min(end, size) - self._at, self._at) if size > self._at else b""
            )
            found = list(_parse(data))
            # A segment is given back from its first page on: what was read is whole if that is there.
            if found and os.pread(self._fd, 1, segment * LOG_SEGMENT) != b"\0":
                self._at += sum(_HEADER + len(frame.payload) for frame in found)
                return found
            if size <= end:
                return []
            if not found and data[:1] not in {b"", b"\0"} and not self._freed(segment):
                raise ProcessError("the log of the process is damaged")
            self._at = end

    def _freed(self, segment: int) -> bool:
        return os.pread(self._fd, 1, segment * LOG_SEGMENT) == b"\0"


def _parse(data: bytes) -> Iterator[Frame]:
    at = 0
    while len(data) - at >= _HEADER and data[at]:
        end = at + _HEADER + int.from_bytes(data[at + 1 : at + _HEADER], "big")
        if end > len(data):
            return
        frame = Frame(data[at], data[at + _HEADER : end])
        check(frame)
        yield frame
        at = end


def check(frame: Frame) -> None:
    """Raise `ProcessError` when *frame* cannot stand in a log."""
    try:
        if frame.kind not in LOGGED:
            raise frames.FrameError(f"frame of kind {frame.kind}")
        if frame.kind in OUTPUT:
            frames.decode_output(frame.payload)
        elif frame.kind == Kind.EXITED:
            exit_of(frame)
        elif frame.kind == Kind.GAP:
            gap_of(frame)
        else:
            msgspec.json.decode(frame.payload, type=dict)
    except (frames.FrameError, msgspec.MsgspecError) as error:
        raise ProcessError(f"the log of the process is damaged: {error}") from error


def exit_of(frame: Frame) -> Exit:
    """Return the record of an EXITED frame."""
    return msgspec.json.decode(frame.payload, type=Exit)


def gap_of(frame: Frame) -> Gap:
    """Return the record of a GAP frame."""
    return msgspec.json.decode(frame.payload, type=Gap)


def start_of(frame: Frame) -> int:
    """Return the offset at which a frame of a log begins."""
    if frame.kind in OUTPUT:
        return frames.decode_output(frame.payload).offset
    if frame.kind == Kind.GAP:
        return gap_of(frame).from_offset
    offset = msgspec.json.decode(frame.payload, type=dict).get("offset")
    return offset if isinstance(offset, int) else 0


def end_of(frame: Frame) -> int:
    """Return the offset of the output that follows a frame of a log."""
    if frame.kind in OUTPUT:
        found = frames.decode_output(frame.payload)
        return found.offset + len(found.data)
    return gap_of(frame).to_offset if frame.kind == Kind.GAP else 0
