"""The frames of a process's log from an offset on: nothing twice, nothing missing without a GAP.

The stream is the same whether the process runs, has ended, or its sandbox is asleep.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import msgspec

from atoll.engine.link.link import TERMINAL
from atoll.engine.processes.copying import LogCopy
from atoll.engine.processes.logs import LogReader, exit_of, gap_of
from atoll.engine.processes.records import UNKNOWN, ProcessRecord
from atoll.errors import ProcessError
from atoll.wire import frames
from atoll.wire.agent import HEARTBEAT_INTERVAL
from atoll.wire.frames import Frame, Kind
from atoll.wire.records import Exit

_OUTPUT = frozenset({Kind.STDOUT, Kind.STDERR})

POLL = 0.01
POLL_MOST = 0.1
"""Seconds between two looks at a log that is followed, growing while nothing comes. A look is one
fstat; 200 silent followers cost 4 % of a core."""

QUIET = 0.1
"""Seconds without output after which a follower is told so (a HEARTBEAT): what it has of a line is
all there is for now."""


HEARD = 0.2
"""Seconds until an end that is in the log and that no agent has told yet is stored by what the log says:
who asks the agent again waits up to 5 s where a connection broke."""

STORED = 2.0
"""Seconds that the end of a process is held back until it is stored, so that who was told of it
finds it in every record; where storing fails (a full disk) it is told all the same."""


class Cut:
    """Cuts frames to what a caller lacks who has everything before `at`. Pure."""

    def __init__(self, at: int) -> None:
        self.at = at

    def take(self, frame: Frame) -> Iterator[Frame]:
        """Yield what *frame* becomes: a GAP in front of it, a part of it, or nothing."""
        if frame.kind in _OUTPUT:
            yield from self._output(frame)
        elif frame.kind == Kind.GAP:
            gap = gap_of(frame)
            yield from self.skip(gap.from_offset, "no longer kept")
            yield from self.skip(gap.to_offset, gap.reason)
        elif frame.kind == Kind.EXITED:
            yield from self.skip(exit_of(frame).offset, "no longer kept")
            yield frame
        elif frame.kind == Kind.ERROR:
            yield frame

    def _output(self, frame: Frame) -> Iterator[Frame]:
        seq, start, data = frames.decode_output(frame.payload)
        yield from self.skip(start, "no longer kept")
        if start + len(data) > self.at:
            cut = self.at - start
            payload = frames.encode_output(frame.kind, seq, self.at, data[cut:])[5:] if cut else b""
            self.at = start + len(data)
            yield Frame(frame.kind, payload) if cut else frame

    def skip(self, to: int, reason: str) -> Iterator[Frame]:
        """Yield a GAP up to *to* if that is ahead."""
        if to > self.at:
            body = {"from_offset": self.at, "to_offset": to, "reason": reason, "seq": 0}
            self.at = to
            yield _json(Kind.GAP, {**body, "offset": to})


def _json(kind: Kind, body: dict[str, object]) -> Frame:
    return Frame(kind, json.dumps(body).encode())


def last(record: ProcessRecord) -> Frame:
    """Return the frame that ends the stream of a process whose log does not say how it ended."""
    if record.exit_code is None:
        reason = record.reason or UNKNOWN
        error = ProcessError(
            f"process {record.id!r} has no exit code: {reason}",
            context={"process": record.id, "status": record.status, "reason": reason},
        )
        return _json(Kind.ERROR, error.to_wire())
    known = Exit(
        exit_code=record.exit_code,
        signal=record.signal,
        reason=record.reason,
        offset=record.size or 0,
    )
    return Frame(Kind.EXITED, msgspec.json.encode(known))


class Process:
    """One start of a process as this engine sees it.

    Attributes:
        record: as it was stored last.
        done: set once the end is stored.
        ending: whether the end is known and being stored.
        copy: its log, where the engine writes that.
        silent: set unless a connection is read that tells of it.
    """

    def __init__(self, record: ProcessRecord) -> None:
        self.record = record
        self.done = asyncio.Event()
        self.ending = not record.live
        self.copy: LogCopy | None = None
        self.silent = asyncio.Event()
        self.silent.set()
        if not record.live:
            self.done.set()

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None, None]:
        """Have `silent` say whether there may be more to hear."""
        self.silent.clear()
        try:
            yield
        finally:
            self.silent.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for the end, *seconds* at most; return whether it has come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.done.wait()
        return self.done.is_set()


Settle = Callable[[Process], Awaitable[object]]


async def follow(
    log: LogReader,
    process: Process,
    from_offset: int,
    *,
    to_end: bool,
    limit: float | None,
    settle: Settle | None = None,
) -> AsyncGenerator[Frame, None]:
    """Yield the frames from *from_offset* on.

    Args:
        log: of the process.
        process: whose end is waited for.
        from_offset: what the caller has already.
        to_end: wait for more until the process ends.
        limit: seconds after which the stream ends anyway, with END; None: none.
        settle: stores the end that is in the log, if it can.
    """
    cut, pace = Cut(from_offset), _Pace(limit)
    log.seek(from_offset)
    yield _json(Kind.STARTED, {"pid": process.record.pid or 0, "seq": 0, "offset": 0})
    while True:
        over = process.done.is_set()
        found = await asyncio.to_thread(log.read) if log.more else []
        for frame in found:
            if frame.kind in TERMINAL:
                await _stored(process, settle)
            for part in cut.take(frame):
                yield part
            if frame.kind in TERMINAL:
                return
        if found:
            pace.reset()
        elif over:
            for gap in cut.skip(process.record.size or 0, "could not be kept"):
                yield gap
            yield last(process.record)
            return
        elif not to_end or pace.over:
            yield _json(Kind.END, {"offset": cut.at})
            return
        elif pace.beats():
            yield Frame(Kind.HEARTBEAT, b"")
        else:
            await process.wait(pace.next())


async def _stored(process: Process, settle: Settle | None) -> None:
    """Wait until the end that was read is stored, or cannot be."""
    if settle and not await process.wait(HEARD):
        await settle(process)
    await process.wait(STORED)


class _Pace:
    """When to look again, and when to say that nothing comes."""

    def __init__(self, limit: float | None) -> None:
        now = time.monotonic()
        self._until = None if limit is None else now + limit
        self.reset()

    def reset(self) -> None:
        self._delay = POLL
        self._beat = time.monotonic() + QUIET

    @property
    def over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def beats(self) -> bool:
        now = time.monotonic()
        if now < self._beat:
            return False
        self._beat = now + HEARTBEAT_INTERVAL
        return True

    def next(self) -> float:
        delay, self._delay = self._delay, min(self._delay * 1.5, POLL_MOST)
        return delay
