"""From frames to events: order, resumption by offset, decoding; and from events to a result.

Offsets count the bytes of a command's combined output. After a lost connection the caller attaches
again from `Reader.position`; whatever the engine sends twice is cut here, whatever is missing
becomes a `Gap`, so that a byte is never repeated and never silently lost.
"""

import codecs
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from atoll import errors
from atoll.sdk import _arguments, _shared
from atoll.wire import frames, records
from atoll.wire.agent import OUTPUT_LIMIT
from atoll.wire.frames import Kind
from atoll.wire.process import (
    ExecEvent,
    ExecRequest,
    ExecResult,
    Exited,
    Failed,
    Gap,
    Started,
    Stderr,
    Stdout,
)

STDIN_PIECE = 1 << 20
"""Largest payload of a STDIN frame we send, in bytes."""


def for_result(request: ExecRequest, *, live: bool) -> ExecRequest:
    """Return *request* for a caller who waits for a result.

    Unless output is wanted *live*, the agent itself cuts it at the limit of a result.
    """
    return msgspec.structs.replace(request, buffered=not live)


def for_handle(request: ExecRequest, *, pipe: bool, pty: bool, cols: int, rows: int) -> ExecRequest:
    """Return *request* for a caller who wants a handle."""
    return msgspec.structs.replace(
        request, open_stdin=pipe, pty=pty, cols=cols, rows=rows, shell_state=False, turn=False
    )


def with_input(request: ExecRequest) -> ExecRequest:
    """Return *request* for a body that carries standard input."""
    return msgspec.structs.replace(request, stdin=True)


def header_frame(request: ExecRequest) -> bytes:
    """Return the first frame of a body that carries standard input."""
    return frames.encode(Kind.HEADER, _shared.encoded(request))


def stdin_frames(data: bytes) -> Iterator[bytes]:
    """Yield *data* as STDIN frames."""
    for start in range(0, len(data), STDIN_PIECE):
        yield frames.encode(Kind.STDIN, data[start : start + STDIN_PIECE])


def input_frames(request: ExecRequest, stdin: str | bytes | bytearray | memoryview) -> bytes:
    """Return the whole body of a command whose standard input is known."""
    data = _arguments.encode_content(stdin, None)
    return b"".join([header_frame(request), *stdin_frames(data), frames.encode(Kind.STDIN_CLOSE)])


def snapshot_name(request: ExecRequest) -> str:
    """Return what the snapshot before a command is called: by the command, for people."""
    words = [request.command] if isinstance(request.command, str) else request.command
    shown = "".join(c if c.isprintable() else " " for c in " ".join(words))
    return f"before: {shown}"[:_NAME]


_NAME = 100  # characters


def after(result: ExecResult, snapshot: str | None) -> ExecResult:
    """Return *result* with the snapshot that was taken before."""
    return msgspec.structs.replace(result, snapshot_id=snapshot) if snapshot else result


def note_snapshot(error: errors.SandboxError, snapshot: str | None) -> None:
    """Tell in *error* which snapshot was taken before what failed."""
    if snapshot:
        error.context["snapshot"] = snapshot
        if isinstance(error.result, ExecResult):
            error.result = after(error.result, snapshot)


class Reader:
    """Turns the bytes of an exec answer into events, over as many connections as it takes."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.position = 0
        self.finished = False
        self._started = False
        self._resumed = False
        self._seq = 0
        self._frames_seen = 0
        self._frames = frames.Decoder()
        # Base64 is a view of the whole output; single pieces of it are shown as text all the same.
        new = codecs.getincrementaldecoder("utf-8" if encoding == "base64" else encoding)
        self._stdout, self._stderr = new("replace"), new("replace")

    def resume(self) -> int:
        """Prepare for a new connection; return the offset to attach from."""
        self._frames = frames.Decoder()
        self._resumed = True
        return self.position

    def progressed(self) -> bool:
        """Whether any frame came since this was asked last."""
        seen, self._frames_seen = self._frames_seen, 0
        return seen > 0

    def feed(self, data: bytes) -> Iterator[ExecEvent]:
        """Yield the events completed by *data*; frames of unknown kinds are skipped.

        Raises:
            VersionMismatchError: this is not the encoding of the stream.
        """
        try:
            for frame in self._frames.feed(data):
                if not self.finished:
                    self._frames_seen += 1
                    yield from self._events(frame)
        except (frames.FrameError, msgspec.MsgspecError) as error:
            raise errors.VersionMismatchError(f"malformed output stream: {error}") from error

    def _events(self, frame: frames.Frame) -> Iterator[ExecEvent]:
        match frame.kind:
            case Kind.STDOUT | Kind.STDERR:
                yield from self._output(frame.kind, frames.decode_output(frame.payload))
            case Kind.STARTED if not self._started:
                self._started = True
                start = msgspec.json.decode(frame.payload, type=records.Started)
                yield Started(pid=start.pid, seq=start.seq, offset=start.offset)
            case Kind.GAP:
                gap = msgspec.json.decode(frame.payload, type=records.Gap)
                if gap.to_offset > self.position:
                    yield from self._gap(gap.to_offset, gap.reason, gap.seq)
            case Kind.EXITED:
                yield from self._exit(msgspec.json.decode(frame.payload, type=records.Exit))
            case Kind.ERROR:
                self.finished = True
                yield Failed(error=_envelope(frame.payload), seq=self._seq, offset=self.position)

    def _output(self, kind: int, piece: frames.Output) -> Iterator[ExecEvent]:
        if self._resumed and piece.offset > self.position:
            yield from self._gap(piece.offset, "lost", piece.seq)
        self._resumed = False
        seen = self.position - piece.offset
        data = piece.data[seen:] if seen > 0 else piece.data
        if not data:
            return
        offset = max(piece.offset, self.position)
        self.position = offset + len(data)
        self._seq = piece.seq
        if kind == Kind.STDOUT:
            text = self._stdout.decode(data)
            yield Stdout(data=data, text=text, seq=piece.seq, offset=offset)
        else:
            text = self._stderr.decode(data)
            yield Stderr(data=data, text=text, seq=piece.seq, offset=offset)

    def _gap(self, to_offset: int, reason: str, seq: int) -> Iterator[ExecEvent]:
        yield from self._flush()
        start, self.position, self._resumed = self.position, to_offset, False
        yield Gap(from_offset=start, to_offset=to_offset, reason=reason, seq=seq, offset=start)

    def _exit(self, record: records.Exit) -> Iterator[ExecEvent]:
        yield from self._flush()
        self.finished = True
        yield Exited(**msgspec.structs.asdict(record))

    def _flush(self) -> Iterator[ExecEvent]:
        """Yield what the decoders hold of a character that will never be completed."""
        for decoder, event in ((self._stdout, Stdout), (self._stderr, Stderr)):
            if text := decoder.decode(b"", final=True):
                yield event(data=b"", text=text, seq=self._seq, offset=self.position)
            decoder.reset()


def _envelope(payload: bytes) -> dict[str, Any]:
    decoded = msgspec.json.decode(payload)
    if not isinstance(decoded, dict):
        raise frames.FrameError("an error that is not an object")
    return decoded


class Collector:
    """Keeps the output of a command up to a limit per stream, and counts all of it."""

    def __init__(self, limit: int = OUTPUT_LIMIT) -> None:
        self._limit = limit
        self._stdout, self._stderr = bytearray(), bytearray()
        self._counts = [0, 0]
        self._gap = False

    def add(self, event: ExecEvent) -> None:
        """Take the output of one event; other events only tell whether something is missing."""
        if isinstance(event, Stdout):
            self._keep(0, self._stdout, event.data)
        elif isinstance(event, Stderr):
            self._keep(1, self._stderr, event.data)
        elif isinstance(event, Gap):
            self._gap = True

    def _keep(self, index: int, kept: bytearray, data: bytes) -> None:
        self._counts[index] += len(data)
        kept += data[: self._limit - len(kept)]

    def result(self, exited: Exited, request: ExecRequest, encoding: str) -> ExecResult:
        """Return the result of the command that ended with *exited*."""
        totals = (
            max(exited.stdout_bytes, self._counts[0]),
            max(exited.stderr_bytes, self._counts[1]),
        )
        kept = len(self._stdout), len(self._stderr)
        return ExecResult(
            exit_code=exited.exit_code,
            signal=exited.signal,
            stdout_bytes=bytes(self._stdout),
            stderr_bytes=bytes(self._stderr),
            command=request.command,
            duration_ms=round(exited.duration * 1000),
            timestamp=datetime.now(UTC),
            session_id=request.session,
            truncated=exited.truncated or self._gap or kept != totals,
            timed_out=exited.timed_out,
            oom_killed=exited.oom_killed,
            pids_limited=exited.pids_limited,
            state_saved=exited.state_saved,
            stdout_total=totals[0],
            stderr_total=totals[1],
            encoding=encoding,
        )


def failure(
    event: Failed, collector: Collector, request: ExecRequest, encoding: str
) -> errors.SandboxError:
    """Return the error of a command that failed, with the output that came before."""
    error = errors.from_wire(event.error)
    unknown = Exited(exit_code=-1)
    error.result = collector.result(unknown, request, encoding)
    return error


def check_exit(exited: Exited, result: ExecResult, *, check: bool) -> ExecResult:
    """Return *result*, or raise what *exited* means for a caller who waits for a result.

    Raises:
        TimeoutError: the command's time was over; `result` is what there is.
        OperationInterruptedError: the command was cancelled by somebody else.
        SessionTerminatedError: the command ended the shell of its session.
        CommandFailedError: it exited with another code than 0 and *check* is set.
    """
    error: errors.SandboxError
    outcome = {"exit_code": exited.exit_code, "signal": exited.signal}
    ended = f"signal {exited.signal}" if exited.signal else f"exit code {exited.exit_code}"
    if exited.timed_out:
        error = errors.TimeoutError(
            f"the command reached its timeout and was killed after {exited.duration:.1f} s",
            context=outcome,
            suggestion="pass a longer timeout=, or None for none; .result has the output so far",
        )
    elif exited.cancelled:
        error = errors.OperationInterruptedError("the command was cancelled", context=outcome)
    elif exited.session_ended:
        error = errors.SessionTerminatedError(
            f"the command ended its session's shell with {ended}",
            context=outcome,
            suggestion="the next call starts a fresh shell; to run a program that may exit, "
            "pass a list of arguments or wrap it as ( … )",
        )
    elif check and exited.exit_code:
        tail = result.stderr.strip()[-500:]
        error = errors.CommandFailedError(
            f"the command ended with {ended}" + (f": {tail}" if tail else ""), context=outcome
        )
    else:
        return result
    error.result = result
    raise error
