"""A command's output as one JSON object, at the end.

Two streams of 32 MiB are several hundred megabytes as text, as base64 and as escaped JSON. So they
are kept as input is (`spool`), little in memory and the rest on disk, and the answer is written in
pieces that are made one at a time.
"""

import base64
import codecs
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from atoll.errors import SandboxError, SessionTerminatedError, TimeoutError
from atoll.server import shapes
from atoll.server.spool import Spool
from atoll.wire import frames, process
from atoll.wire.agent import OUTPUT_LIMIT
from atoll.wire.frames import Frame, Kind


class Buffered:
    """Collects output, within `OUTPUT_LIMIT` per stream. A context manager.

    Args:
        command: repeated in the answer; so is `session`.
        spool: makes a place for one stream.
    """

    def __init__(
        self, command: str | list[str], session: str | None, spool: Callable[[], Spool]
    ) -> None:
        self._command = command
        self._session = session
        self._started = datetime.now(UTC)
        self._opened = ExitStack()
        self._output = {
            kind: Output(self._opened.enter_context(spool())) for kind in (Kind.STDOUT, Kind.STDERR)
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    async def frame(self, frame: Frame) -> None:
        """Take one frame; an ERROR frame is not for here."""
        if output := self._output.get(Kind(frame.kind)):
            await output.add(frames.decode_output(frame.payload).data)

    def answer(self, exited: Frame, request_id: str) -> tuple[int, dict[str, Any]]:
        """Return status and body, for `pieces`: the result, or an error that holds it.

        The time was over (`TimeoutError`), or the command ended its session's shell
        (`SessionTerminatedError`): `context.result` has what there is.
        """
        end = msgspec.json.decode(exited.payload, type=dict[str, Any])
        result, error = self._result(end), _failure(end)
        if error is None:
            return 200, result
        error.context["result"] = result
        return error.wire_status, shapes.envelope(error, request_id)

    def _result(self, end: Mapping[str, Any]) -> dict[str, Any]:
        plain = process.ExecResult(
            exit_code=end["exit_code"],
            signal=end.get("signal"),
            command=self._command,
            duration_ms=round(end.get("duration", 0.0) * 1000),
            timestamp=self._started,
            session_id=self._session,
            truncated=end.get("truncated", False),
            timed_out=end.get("timed_out", False),
            oom_killed=end.get("oom_killed", False),
            pids_limited=end.get("pids_limited", False),
            state_saved=end.get("state_saved", True),
            stdout_total=end.get("stdout_bytes", 0),
            stderr_total=end.get("stderr_bytes", 0),
        )
        return plain.to_dict() | both(self._output)


def both(output: Mapping[Kind, "Output"]) -> dict[str, Any]:
    """Return the fields of both streams, for `pieces`: text, and bytes where text is lossy."""
    stdout, stderr = output[Kind.STDOUT], output[Kind.STDERR]
    exact = {
        f"{name}Base64": output.base64
        for name, output in (("stdout", stdout), ("stderr", stderr))
        if not output.is_text()
    }
    return {"stdout": stdout.text, "stderr": stderr.text} | exact


def _failure(end: Mapping[str, Any]) -> SandboxError | None:
    if end.get("timed_out"):
        return TimeoutError("the command's time is over", suggestion="pass a longer timeout")
    if end.get("session_ended"):
        return SessionTerminatedError(
            "the command ended the shell of its session",
            context={"exit_code": end["exit_code"], "signal": end.get("signal")},
            suggestion="the same session id works again, with a fresh shell",
        )
    return None


class Output:
    """One stream. Its methods `text` and `base64` yield the inside of a JSON string.

    Attributes:
        cut: whether there was more than `OUTPUT_LIMIT` bytes.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.cut = False
        self._strict = codecs.getincrementaldecoder("utf-8")("strict")
        self._valid = True

    async def add(self, data: bytes) -> None:
        """Take *data*, as far as there is room for it."""
        room = OUTPUT_LIMIT - self._spool.size
        self.cut = self.cut or len(data) > room
        data = data[:room]
        self._check(data)
        await self._spool.write(data)

    def is_text(self) -> bool:
        """Whether all of it decodes."""
        self._check(b"", final=True)
        return self._valid

    def _check(self, data: bytes, *, final: bool = False) -> None:
        try:
            self._valid = self._valid and self._strict.decode(data, final) is not None
        except UnicodeDecodeError:
            self._valid = False

    async def text(self) -> AsyncIterator[bytes]:
        """Yield it as text; bytes that do not decode are replaced."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async for chunk in self._spool.chunks():
            yield msgspec.json.encode(decoder.decode(chunk))[1:-1]
        yield msgspec.json.encode(decoder.decode(b"", final=True))[1:-1]

    async def base64(self) -> AsyncIterator[bytes]:
        """Yield its bytes."""
        rest = b""
        async for chunk in self._spool.chunks():
            whole = len(rest + chunk) // 3 * 3
            yield base64.b64encode((rest + chunk)[:whole])
            rest = (rest + chunk)[whole:]
        yield base64.b64encode(rest)


async def pieces(value: Any) -> AsyncIterator[bytes]:
    """Yield *value* as JSON; a function in it is called for the inside of a string."""
    if callable(value):
        yield b'"'
        async for piece in value():
            yield piece
        yield b'"'
    elif isinstance(value, dict):
        before = b"{"
        for name, part in value.items():
            yield before + msgspec.json.encode(name) + b":"
            async for piece in pieces(part):
                yield piece
            before = b","
        yield b"}" if value else b"{}"
    else:
        yield msgspec.json.encode(value, enc_hook=str)
