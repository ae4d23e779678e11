"""A command's stream, as a case looks at it whatever client it came by."""

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import atoll


@dataclass(frozen=True)
class Streamed:
    """A command's stream: pieces of stdout with the seconds until they came, and its last event."""

    pieces: list[tuple[float, bytes]]
    code: int
    signal: str | None
    session_ended: bool
    timed_out: bool

    @property
    def stdout(self) -> bytes:
        return b"".join(data for _, data in self.pieces)


class Events:
    """Sorts the events of an SDK's stream as they come."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._pieces: list[tuple[float, bytes]] = []
        self._last: object = None

    def add(self, event: object) -> None:
        assert not isinstance(self._last, atoll.Exited), "an event after the exit"
        self._last = event
        if isinstance(event, atoll.Stdout):
            self._pieces.append((time.monotonic() - self._start, event.data))

    def result(self) -> Streamed:
        end = self._last
        assert isinstance(end, atoll.Exited), end
        return Streamed(self._pieces, end.exit_code, end.signal, end.session_ended, end.timed_out)


def timed(
    answer: http.client.HTTPResponse, start: float, pieces: list[tuple[float, bytes]]
) -> Iterator[bytes]:
    """Yield the data lines of server-sent events; note when which output came."""
    while line := answer.readline():
        if line.startswith(b"data: "):
            event = json.loads(line[6:])
            if event["type"] == "stdout":
                pieces.append((time.monotonic() - start, event["data"].encode()))
            yield line
