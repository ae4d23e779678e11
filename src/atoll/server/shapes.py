"""The forms of a command's output as it comes: frames, server-sent events of 0.12, NDJSON.

Pure: each form turns checked frames of the agent into bytes of a response body.
"""

import base64
import codecs
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from atoll.engine.link.link import error_of
from atoll.errors import SandboxError
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"
JSON = "application/json"

_NAMES = {Kind.STDOUT: "stdout", Kind.STDERR: "stderr"}


def envelope(error: SandboxError, request_id: str) -> dict[str, Any]:
    """Return the error's wire form with the time and the id of this request."""
    return error.to_wire() | {"timestamp": timestamp(), "requestId": request_id}


def timestamp() -> str:
    """Return the current time as the wire has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Form(Protocol):
    """One streamed form."""

    content_type: str

    def frame(self, frame: Frame) -> bytes:
        """Return what *frame* becomes; empty bytes for nothing."""

    def error(self, error: SandboxError) -> bytes:
        """Return what an error becomes that ends the stream."""


class FramesForm:
    """Frames as the agent sends them; only errors get the id of the request."""

    content_type = frames.CONTENT_TYPE

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id

    def frame(self, frame: Frame) -> bytes:
        """See `Form.frame`."""
        if frame.kind == Kind.ERROR:
            return self.error(error_of(frame))
        return frames.encode(frame.kind, frame.payload)

    def error(self, error: SandboxError) -> bytes:
        """See `Form.error`."""
        return frames.encode(Kind.ERROR, json.dumps(envelope(error, self._request_id)).encode())


class _Text:
    """Incremental UTF-8 of both streams: a character is never cut between two events."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {kind: decoder("replace") for kind in _NAMES}

    def decode(self, kind: Kind, data: bytes) -> str:
        return self._decoders[kind].decode(data)

    def rest(self) -> list[tuple[Kind, str]]:
        found = [
            (kind, decoder.decode(b"", final=True)) for kind, decoder in self._decoders.items()
        ]
        return [(kind, text) for kind, text in found if text]


class SseForm:
    """The event shapes that 0.12 clients parse, one JSON object per ``data:`` line.

    Args:
        command: repeated in the first event.
        request_id: for errors.
    """

    content_type = SSE

    def __init__(self, command: str | list[str], request_id: str) -> None:
        self._command = command
        self._request_id = request_id
        self._text = _Text()

    def frame(self, frame: Frame) -> bytes:
        """See `Form.frame`."""
        kind = Kind(frame.kind)
        if kind in _NAMES:
            return self._output(kind, frames.decode_output(frame.payload))
        if kind is Kind.HEARTBEAT:
            return b": heartbeat\n\n"
        if kind is Kind.ERROR:
            return self.error(error_of(frame))
        fields = msgspec.json.decode(frame.payload, type=dict[str, Any])
        if kind is Kind.STARTED:
            return self._event(type="start", command=self._command, pid=fields.get("pid"))
        if kind is Kind.EXITED:
            return self._flushed() + self._complete(fields)
        return self._event(type=kind.name.lower(), **_camel(fields))

    def _output(self, kind: Kind, out: frames.Output) -> bytes:
        fields: dict[str, Any] = {"type": _NAMES[kind], "data": self._text.decode(kind, out.data)}
        if not _is_text(out.data):
            fields["dataBase64"] = base64.b64encode(out.data).decode()
        # As `Last-Event-ID` it names the first byte that the caller does not have.
        return b"id: %d\n" % (out.offset + len(out.data)) + self._event(**fields)

    def _flushed(self) -> bytes:
        events = [self._event(type=_NAMES[kind], data=text) for kind, text in self._text.rest()]
        return b"".join(events)

    def _complete(self, fields: Mapping[str, Any]) -> bytes:
        code = fields.get("exit_code")
        result = _camel(fields) | {"success": code == 0, "command": self._command}
        return self._event(type="complete", exitCode=code, result=result)

    def error(self, error: SandboxError) -> bytes:
        """See `Form.error`; 0.12 clients read `error` as text, the envelope is beside it."""
        body = envelope(error, self._request_id)
        return self._event(type="error", error=error.message, **body)

    def _event(self, **fields: Any) -> bytes:
        return b"data: " + json.dumps({"timestamp": timestamp(), **fields}).encode() + b"\n\n"


class NdjsonForm:
    """The SDK's events (`wire.process`), one JSON object a line; `data` is base64, `text` is not."""

    content_type = NDJSON

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._text = _Text()

    def frame(self, frame: Frame) -> bytes:
        """See `Form.frame`."""
        kind = Kind(frame.kind)
        if kind in _NAMES:
            out = frames.decode_output(frame.payload)
            return _line(
                {
                    "type": _NAMES[kind],
                    "data": base64.b64encode(out.data).decode(),
                    "text": self._text.decode(kind, out.data),
                    "seq": out.seq,
                    "offset": out.offset,
                }
            )
        if kind is Kind.HEARTBEAT:
            return _line({"type": "heartbeat"})
        if kind is Kind.ERROR:
            return self.error(error_of(frame))
        fields = msgspec.json.decode(frame.payload, type=dict[str, Any])
        return _line({"type": kind.name.lower(), **_camel(fields)})

    def error(self, error: SandboxError) -> bytes:
        """See `Form.error`."""
        return _line({"type": "failed", "error": envelope(error, self._request_id)})


class WatchSseForm(SseForm):
    """A watch as 0.12 clients parse it."""

    def __init__(self, request_id: str) -> None:
        super().__init__("", request_id)

    def frame(self, frame: Frame) -> bytes:
        """See `Form.frame`."""
        if frame.kind != Kind.EVENT:
            return b"" if frame.kind == Kind.END else super().frame(frame)
        fields = msgspec.json.decode(frame.payload, type=dict[str, Any])
        kind = fields.pop("type", "")
        if kind in {"watching", "stopped"}:
            return self._event(type=kind, **fields)
        return self._event(type="event", eventType=kind, **fields)


class WatchNdjsonForm(NdjsonForm):
    """A watch as `wire.files.WatchEvent`, one JSON object a line."""

    def frame(self, frame: Frame) -> bytes:
        """See `Form.frame`."""
        if frame.kind == Kind.EVENT:
            return frame.payload + b"\n"
        return b"" if frame.kind == Kind.END else super().frame(frame)


class EventSseForm(SseForm):
    """Events as server-sent events: the same JSON as in NDJSON."""

    def __init__(self, request_id: str) -> None:
        super().__init__("", request_id)

    def frame(self, frame: Frame) -> bytes:
        """See `Form.frame`."""
        if frame.kind == Kind.EVENT:
            return b"data: " + frame.payload + b"\n\n"
        return b"" if frame.kind == Kind.END else super().frame(frame)


def event_form(accept: str, request_id: str) -> Form:
    """Return the form in which a caller wants events whose JSON is the same in all of them."""
    if frames.CONTENT_TYPE in accept:
        return FramesForm(request_id)
    return EventSseForm(request_id) if SSE in accept else WatchNdjsonForm(request_id)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _camel(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {_camel_name(name): value for name, value in fields.items()}


def _camel_name(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)
