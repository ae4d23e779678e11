"""Logs of background processes without I/O: reading, searching for a line, events of 0.12."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from msgspec import structs

from atoll import errors
from atoll.sdk._sse import encode_event, text_fields
from atoll.sdk._stream import Reader
from atoll.wire import frames
from atoll.wire.frames import Kind
from atoll.wire.process import (
    ExecEvent,
    Exited,
    Failed,
    Gap,
    ProcessInfo,
    ProcessLogs,
    Started,
    Stderr,
    Stdout,
    WaitForPort,
)

LONGEST_LINE = 1 << 20
"""Characters of an unfinished line that are searched; of a longer one the last so many."""


class LogReader(Reader):
    """Reads the stream of a log; remembers when nothing more came for a moment.

    Args:
        from_offset: where to begin.
    """

    def __init__(self, from_offset: int = 0) -> None:
        super().__init__()
        self.position = from_offset
        self.quiet = False

    def _events(self, frame: frames.Frame) -> Iterator[ExecEvent]:
        self.quiet = frame.kind == Kind.HEARTBEAT
        self.finished = frame.kind == Kind.END
        yield from super()._events(frame)


class LogMatch(NamedTuple):
    """A line that was waited for, and the match (None where text was looked for)."""

    line: str
    match: "re.Match[str] | None"


class LineSearch:
    """Looks for text or an expression in the lines of two streams, however they are cut.

    A line that has no end yet matches too: text at once, an expression when more characters could
    not make the match longer, or when none came for a moment (`pause`).
    """

    def __init__(self, pattern: "str | re.Pattern[str]") -> None:
        self._pattern = check_pattern(pattern)
        self._rest = {"stdout": "", "stderr": ""}

    def feed(self, stream: Literal["stdout", "stderr"], text: str) -> LogMatch | None:
        """Return the first match that *text* completes."""
        *lines, rest = (self._rest[stream] + text).split("\n")
        self._rest[stream] = rest[-LONGEST_LINE:]
        for line in lines:
            if found := self._search(line.removesuffix("\r")):
                return found
        found = self._search(self._rest[stream])
        certain = found is None or found.match is None or found.match.end() < len(found.line)
        return found if certain else None

    def pause(self) -> LogMatch | None:
        """Return a match in what there is of unfinished lines."""
        for rest in self._rest.values():
            if found := self._search(rest):
                return found
        return None

    def _search(self, line: str) -> LogMatch | None:
        if isinstance(self._pattern, str):
            return LogMatch(line, None) if self._pattern in line else None
        match = self._pattern.search(line)
        return LogMatch(line, match) if match else None


def check_pattern(pattern: "str | re.Pattern[str]") -> "str | re.Pattern[str]":
    """Return what can be looked for in a line.

    Raises:
        ValidationFailedError: it is empty, goes over several lines, or is an expression for bytes.
    """
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if not isinstance(text, str) or not text:
        problem = "a pattern is text or a compiled expression for text"
    elif isinstance(pattern, str) and "\n" in pattern:
        problem = "lines are searched one by one, and the pattern has a line end"
    else:
        return pattern
    raise errors.ValidationFailedError(problem, context={"field": "pattern"})


class LogCollector:
    """Collects the output of a log."""

    def __init__(self) -> None:
        self._stdout, self._stderr, self._truncated = bytearray(), bytearray(), False

    def add(self, event: ExecEvent) -> None:
        """Take one event."""
        if isinstance(event, Stdout):
            self._stdout += event.data
        elif isinstance(event, Stderr):
            self._stderr += event.data
        elif isinstance(event, Gap):
            self._truncated = True

    def result(self, process_id: str) -> ProcessLogs:
        """Return everything that was collected."""
        return ProcessLogs(
            process_id=process_id,
            stdout_bytes=bytes(self._stdout),
            stderr_bytes=bytes(self._stderr),
            truncated=self._truncated,
        )


class LogEncoder:
    """Turns the events of a log into server-sent events of 0.12."""

    def __init__(self, process_id: str) -> None:
        self._id = process_id

    def encode(self, event: ExecEvent) -> bytes:
        """Return the bytes for *event*; none for one that 0.12 does not have."""
        match event:
            case Stdout():
                return self._event("stdout", **text_fields(event.text, event.data))
            case Stderr():
                return self._event("stderr", **text_fields(event.text, event.data))
            case Exited(exit_code=code):
                text = f"Process exited with code {code}"
                return self._event("exit", data=text, exitCode=code)
            case Failed():
                return self.error(str(event.error.get("message")))
            case Gap():
                return self._event(
                    "gap",
                    data=event.reason,
                    fromOffset=event.from_offset,
                    toOffset=event.to_offset,
                )
            case Started():
                return b""

    def error(self, message: str) -> bytes:
        """Return the event of an error that ends the stream."""
        return self._event("error", data=message)

    def _event(self, kind: str, **fields: Any) -> bytes:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return encode_event({"type": kind, **fields, "processId": self._id, "timestamp": at})


def exited_early(
    info: ProcessInfo, logs: ProcessLogs, what: str
) -> errors.ProcessExitedBeforeReadyError:
    """Return the error for a process that ended before *what* happened."""
    tail = (logs.stderr.strip() or logs.stdout.strip())[-500:]
    ended = f"signal {info.signal}" if info.signal else f"exit code {info.exit_code}"
    return errors.ProcessExitedBeforeReadyError(
        f"process {info.id!r} ended ({info.status}, {ended}) before {what}",
        context={
            "process": info.id,
            "exit_code": info.exit_code,
            "signal": info.signal,
            "reason": info.reason,
            "tail": tail,
        },
        suggestion=f"its last output: {tail}" if tail else None,
    )


class Waits:
    """How long the next request of a long wait may take.

    Args:
        limit_ms: of the whole wait; None: none.
        now: monotonic seconds.
        most: seconds of one request.
    """

    def __init__(self, limit_ms: int | None, now: float, most: float) -> None:
        self._until = None if limit_ms is None else now + limit_ms / 1000
        self._most = most
        self._asked = False

    def next(self, now: float) -> int | None:
        """Return milliseconds, or None when the time is over; the first is always given."""
        left = self._most if self._until is None else min(self._most, self._until - now)
        if left <= 0 and self._asked:
            return None
        self._asked = True
        return max(0, round(left * 1000))


def with_wait(request: WaitForPort, wait_ms: int) -> WaitForPort:
    """Return *request* for a wait of so many milliseconds."""
    return structs.replace(request, wait_ms=wait_ms)


def status_range(status: int | range | tuple[int, int]) -> tuple[int, int]:
    """Return the lowest and the highest status that will do.

    Raises:
        ValidationFailedError: there is none between them.
    """
    if isinstance(status, int):
        low = high = status
    elif isinstance(status, range) and status:
        low, high = min(status), max(status)
    elif isinstance(status, tuple | list) and len(status) == 2:
        low, high = status
    else:
        low, high = 1, 0
    if not isinstance(low, int) or not isinstance(high, int) or not 100 <= low <= high <= 599:
        raise errors.ValidationFailedError(
            f"{status!r} has no status of HTTP", context={"field": "status"}
        )
    return low, high


def not_ready(process_id: str, what: str, seconds: float) -> errors.ProcessReadyTimeoutError:
    """Return the error for a process that was not ready in time."""
    return errors.ProcessReadyTimeoutError(
        f"process {process_id!r}: {what} within {seconds:g} s",
        context={"process": process_id, "timeout": seconds},
        suggestion="look at its logs, or wait longer",
    )
