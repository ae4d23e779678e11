"""Server-sent events in the shapes that 0.12 clients parse (sdk.md "Results and streams").

One JSON object per ``data:`` line. Text is JSON-escaped, so no byte of a command's output can
look like the framing; output that is not valid UTF-8 arrives in an extra ``dataBase64`` field.
"""

import base64
import codecs
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from atoll.errors import SandboxError
from atoll.sdk._stream import Collector
from atoll.wire.files import FileMeta, WatchEvent
from atoll.wire.process import ExecEvent, ExecRequest, Exited, Failed, Started, Stderr, Stdout

RESULT_LIMIT = 1 << 20
"""Bytes per stream that the last event repeats in its ``result``; all of it was sent before."""

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def encode_event(event: dict[str, Any]) -> bytes:
    """Return one event as it stands in a ``text/event-stream`` body."""
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


def encode_error(error: SandboxError) -> bytes:
    """Return the event of an error that ends a stream."""
    return encode_event({"type": "error", "error": error.message, "code": error.wire_code})


def encode_watch(event: WatchEvent) -> bytes:
    """Return one event of a watch in the shape of 0.12."""
    shape = {name: value for name, value in event.to_dict().items() if value is not None}
    if event.type not in {"watching", "stopped"}:
        shape = {**shape, "type": "event", "eventType": event.type}
    return encode_event(shape)


def _timestamp(now: datetime) -> str:
    return now.isoformat().replace("+00:00", "Z")


class ExecEncoder:
    """Turns the events of one command into server-sent events."""

    def __init__(self, request: ExecRequest) -> None:
        self._request = request
        self._collector = Collector(RESULT_LIMIT)

    def encode(self, event: ExecEvent, now: datetime | None = None) -> bytes:
        """Return the bytes for *event*."""
        return encode_event(self.shape(event, now or datetime.now(UTC)))

    def shape(self, event: ExecEvent, now: datetime) -> dict[str, Any]:
        """Return *event* in the shape of 0.12."""
        self._collector.add(event)
        match event:
            case Started():
                return {
                    "type": "start",
                    "command": self._request.command,
                    "pid": event.pid,
                    "timestamp": _timestamp(now),
                }
            case Stdout():
                return {"type": "stdout", **text_fields(event.text, event.data)}
            case Stderr():
                return {"type": "stderr", **text_fields(event.text, event.data)}
            case Exited():
                result = self._collector.result(event, self._request, "utf-8")
                return {
                    "type": "complete",
                    "exitCode": event.exit_code,
                    "signal": event.signal,
                    "timedOut": event.timed_out,
                    "sessionEnded": event.session_ended,
                    "result": result.to_dict(),
                    "timestamp": _timestamp(now),
                }
            case Failed():
                return {"type": "error", "error": event.error.get("message"), **_code(event.error)}
            case _:
                return {
                    "type": "gap",
                    "fromOffset": event.from_offset,
                    "toOffset": event.to_offset,
                    "reason": event.reason,
                }


def text_fields(text: str, data: bytes) -> dict[str, str]:
    """Return the fields of a piece of output; with its bytes where the text is lossy."""
    if "\ufffd" in text:
        return {"data": text, "dataBase64": base64.b64encode(data).decode()}
    return {"data": text}


def _code(envelope: dict[str, Any]) -> dict[str, Any]:
    return {"code": envelope["code"]} if "code" in envelope else {}


class FileEncoder:
    """Turns a file into server-sent events: text when it is text, else base64."""

    def __init__(self, metadata: FileMeta) -> None:
        self._metadata = metadata
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._count = 0

    def start(self) -> bytes:
        """Return the event that comes before the content."""
        known = self._metadata
        return encode_event(
            {
                "type": "metadata",
                "mimeType": known.mime_type,
                "size": known.size,
                "isBinary": known.is_binary,
                "encoding": known.encoding,
            }
        )

    def chunk(self, data: bytes) -> bytes:
        """Return the event of one piece of content."""
        self._count += len(data)
        if self._metadata.is_binary:
            text = base64.b64encode(data).decode()
        else:
            text = self._decoder.decode(data)
        return encode_event({"type": "chunk", "data": text})

    def end(self) -> bytes:
        """Return the event after the content."""
        return encode_event({"type": "complete", "bytesRead": self._count})


class SseParser:
    """Reads server-sent events from chunks cut anywhere, even inside a character.

    Lines end with CR, LF or CRLF, also when the two bytes of a CRLF come in different chunks.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self._data: list[str] = []
        self._after_cr = False

    def feed(self, chunk: bytes | str) -> Iterator[Any]:
        """Yield the decoded JSON of every event completed by *chunk*.

        Raises:
            ValueError: the data of an event is not JSON.
        """
        text = chunk if isinstance(chunk, str) else self._decoder.decode(chunk)
        for piece in _LINES.findall(text):
            yield from self._piece(piece)

    def _piece(self, piece: str) -> Iterator[Any]:
        if self._after_cr and piece == "\n":
            self._after_cr = False
            return
        self._after_cr = piece.endswith("\r")
        self._line += piece.rstrip("\r\n")
        if piece[-1] in "\r\n":
            line, self._line = self._line, ""
            yield from self._end_of_line(line)

    def _end_of_line(self, line: str) -> Iterator[Any]:
        if line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
        elif not line and self._data:
            data, self._data = "\n".join(self._data), []
            yield msgspec.json.decode(data)
