"""From the frames of a run to its events, and from the events to a result. Pure.

Used on both sides: by the server for events of 0.12 and whole results, by the SDK for all it does.
Offsets count all bytes of a run's streams; what comes twice is cut here, what is missing is a `Gap`.
"""

import codecs
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from atoll import errors
from atoll.wire import frames
from atoll.wire.agent import OUTPUT_LIMIT
from atoll.wire.frames import CHUNK, Frame, Kind
from atoll.wire.interpreter import (
    CodeResult,
    ExecutionComplete,
    ExecutionError,
    ExecutionLogs,
    ExecutionResult,
    LateOutput,
    read_line,
)
from atoll.wire.process import Failed, Gap, Started, Stderr, Stdout

CodeEvent = (
    Started
    | Stdout
    | Stderr
    | CodeResult
    | ExecutionError
    | LateOutput
    | Gap
    | ExecutionComplete
    | Failed
)

MAX_LINE = 80 << 20
"""Bytes of one line of results; the agent sends no longer one."""


class _Exit(msgspec.Struct):
    exit_code: int
    timed_out: bool = False
    cancelled: bool = False
    reason: str | None = None
    restarted: bool = False
    execution_count: int = 0
    truncated: bool = False
    duration: float = 0.0
    seq: int = 0
    offset: int = 0


class _Gap(msgspec.Struct):
    from_offset: int
    to_offset: int
    reason: str = "lost"
    seq: int = 0


class _Started(msgspec.Struct):
    pid: int = 0
    seq: int = 0
    offset: int = 0


class CodeReader:
    """Turns frames into events, over as many connections as it takes."""

    def __init__(self) -> None:
        self.position = 0
        self.finished = False
        self._frames = frames.Decoder()
        self._frames_seen = 0
        self._started = self._resumed = self._broken = False
        self._line = bytearray()
        new = codecs.getincrementaldecoder("utf-8")
        self._decoders = {Kind.STDOUT: new("replace"), Kind.STDERR: new("replace")}

    def resume(self) -> int:
        """Prepare for a new connection; return the offset to attach from."""
        self._frames, self._resumed = frames.Decoder(), True
        return self.position

    def progressed(self) -> bool:
        """Whether any frame came since this was asked last."""
        seen, self._frames_seen = self._frames_seen, 0
        return seen > 0

    def feed(self, data: bytes) -> Iterator[CodeEvent]:
        """Yield the events completed by *data*.

        Raises:
            VersionMismatchError: this is not the encoding of the stream.
        """
        try:
            for frame in self._frames.feed(data):
                if not self.finished:
                    self._frames_seen += 1
                    yield from self.take(frame)
        except (frames.FrameError, msgspec.MsgspecError) as error:
            raise errors.VersionMismatchError(f"malformed stream of results: {error}") from error

    def take(self, frame: Frame) -> Iterator[CodeEvent]:
        """Yield the events of one frame; frames of unknown kinds are skipped."""
        match frame.kind:
            case Kind.STDOUT | Kind.STDERR | Kind.RESULT:
                yield from self._piece(Kind(frame.kind), frames.decode_output(frame.payload))
            case Kind.STARTED if not self._started:
                self._started = True
                start = msgspec.json.decode(frame.payload, type=_Started)
                yield Started(pid=start.pid, seq=start.seq, offset=start.offset)
            case Kind.GAP:
                gap = msgspec.json.decode(frame.payload, type=_Gap)
                if gap.to_offset > self.position:
                    yield self._gap(gap.to_offset, gap.reason, gap.seq)
            case Kind.EXITED:
                yield from self._exit(msgspec.json.decode(frame.payload, type=_Exit))
            case Kind.ERROR:
                self.finished = True
                yield Failed(error=msgspec.json.decode(frame.payload), offset=self.position)

    def _piece(self, kind: Kind, piece: frames.Output) -> Iterator[CodeEvent]:
        if self._resumed and piece.offset > self.position:
            yield self._gap(piece.offset, "lost", piece.seq)
        self._resumed = False
        data = piece.data[max(0, self.position - piece.offset) :]
        if not data:
            return
        offset = max(piece.offset, self.position)
        self.position = offset + len(data)
        if kind is Kind.RESULT:
            yield from self._lines(data)
            return
        text = self._decoders[kind].decode(data)
        event = Stdout if kind is Kind.STDOUT else Stderr
        yield event(data=data, text=text, seq=piece.seq, offset=offset)

    def _lines(self, data: bytes) -> Iterator[CodeEvent]:
        *whole, rest = data.split(b"\n")
        for line in whole:
            complete, self._line = bytes(self._line) + line, bytearray()
            broken, self._broken = self._broken, False
            if not broken and (event := _shown(complete)) is not None:
                yield event
        self._line += rest
        if len(self._line) > MAX_LINE:
            raise frames.FrameError("a result without an end")

    def _gap(self, to_offset: int, reason: str, seq: int) -> Gap:
        start, self.position, self._resumed = self.position, to_offset, False
        self._broken, self._line = bool(self._line), bytearray()
        for decoder in self._decoders.values():
            decoder.reset()
        return Gap(from_offset=start, to_offset=to_offset, reason=reason, seq=seq, offset=start)

    def _exit(self, record: _Exit) -> Iterator[CodeEvent]:
        for kind, event in ((Kind.STDOUT, Stdout), (Kind.STDERR, Stderr)):
            if text := self._decoders[kind].decode(b"", final=True):
                yield event(data=b"", text=text, seq=record.seq, offset=self.position)
        self.finished = True
        yield ExecutionComplete(
            execution_count=record.execution_count,
            success=record.exit_code == 0,
            timed_out=record.timed_out,
            cancelled=record.cancelled,
            reason=record.reason,
            restarted=record.restarted,
            truncated=record.truncated,
            duration_ms=round(record.duration * 1000),
            seq=record.seq,
            offset=record.offset,
        )


def _shown(line: bytes) -> CodeEvent | None:
    """Return what a line says; one that user code forged and that makes no sense says so."""
    try:
        return read_line(line)
    except msgspec.MsgspecError as error:
        return CodeResult(type="display", text=f"<a result that cannot be read: {error}>")


class Collector:
    """Puts a result together from events; of each stream it keeps up to `OUTPUT_LIMIT` characters."""

    def __init__(self) -> None:
        self._printed: tuple[list[str], list[str]] = ([], [])
        self._room = [OUTPUT_LIMIT, OUTPUT_LIMIT]
        self._results: list[CodeResult] = []
        self._error: ExecutionError | None = None
        self._late: list[LateOutput] = []
        self._end = ExecutionComplete()
        self._gap = False

    def add(self, event: CodeEvent) -> None:
        """Take one event."""
        match event:
            case Stdout() | Stderr() if event.text:
                self._print(0 if isinstance(event, Stdout) else 1, event.text)
            case CodeResult():
                self._show(event)
            case ExecutionError():
                self._error = event
            case LateOutput():
                self._late.append(event)
            case Gap():
                self._gap = True
            case ExecutionComplete():
                self._end = event
            case _:
                pass

    def _print(self, index: int, text: str) -> None:
        kept = text[: self._room[index]]
        self._room[index] -= len(kept)
        self._gap = self._gap or len(kept) < len(text)
        pieces = self._printed[index]
        if pieces and len(pieces[-1]) < CHUNK and not pieces[-1].endswith("\n"):
            pieces[-1] += kept
        elif kept:
            pieces.append(kept)

    def _show(self, shown: CodeResult) -> None:
        if shown.type == "clear":
            self._results.clear()
            return
        if shown.type == "update":
            for index, known in enumerate(self._results):
                if known.display_id is not None and known.display_id == shown.display_id:
                    self._results[index] = msgspec.structs.replace(shown, type=known.type)
            return
        self._results.append(shown)

    def result(self, code: str, context: str | None, now: datetime) -> ExecutionResult:
        """Return the result of what was added."""
        end = self._end
        return ExecutionResult(
            code=code,
            logs=ExecutionLogs(stdout=self._printed[0], stderr=self._printed[1]),
            results=self._results,
            error=self._error,
            execution_count=end.execution_count,
            late=self._late,
            truncated=end.truncated or self._gap,
            timed_out=end.timed_out,
            restarted=end.restarted,
            duration_ms=end.duration_ms,
            context_id=context,
            timestamp=now,
        )


def timed_out(result: ExecutionResult, *, with_result: bool = False) -> errors.TimeoutError:
    """Return the error of a run whose time was over."""
    what = (
        "its interpreter did not listen and was replaced: all variables are gone"
        if result.restarted
        else "it was interrupted, its variables are kept"
    )
    error = errors.TimeoutError(
        f"the code did not end within its time; {what}",
        context={"restarted": result.restarted}
        | ({"result": result.to_dict()} if with_result else {}),
        suggestion="pass a longer timeout=, or None for none; .result has the output so far",
    )
    error.result = result
    return error


def event_shape(event: CodeEvent) -> dict[str, Any]:
    """Return an event as 0.12 clients know it; empty for one that they have no shape for."""
    match event:
        case Stdout() | Stderr():
            name = "stdout" if isinstance(event, Stdout) else "stderr"
            return {"type": name, "text": event.text} if event.text else {}
        case CodeResult():
            kind = {} if event.type == "result" else {"kind": event.type}
            shown = {} if event.display_id is None else {"displayId": event.display_id}
            return {"type": "result", **event.to_dict(), **kind, **shown}
        case ExecutionError():
            return {
                "type": "error",
                "ename": event.name,
                "evalue": event.message,
                "traceback": event.traceback,
                "lineNumber": event.line_number,
            }
        case LateOutput():
            return {"type": "late", **event.to_dict()}
        case ExecutionComplete():
            told = {"type": "execution_complete", "execution_count": event.execution_count}
            early = {"reason": event.reason, "restarted": event.restarted} if event.reason else {}
            return told | early
        case Gap():
            return {"type": "gap", **event.to_dict()}
        case Failed():
            error = event.error
            code = error.get("code")
            return {
                "type": "error",
                "ename": code,
                "evalue": error.get("message"),
                "traceback": [],
                "code": code,
            }
        case _:
            return {}
