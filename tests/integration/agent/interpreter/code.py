"""Runs of code by the agent's protocol, with the Python of the tests."""

import json
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from atoll.wire import frames
from atoll.wire.frames import Frame, Kind
from integration.agent.client import Client, Connection

PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"


class Ran(NamedTuple):
    """What a run answered."""

    stdout: str
    lines: list[dict[str, Any]]
    record: dict[str, Any]

    @property
    def text(self) -> Any:
        return [line["text"] for line in self.lines if line["type"] == "result"][-1]


def create(agent: Client, **fields: Any) -> str:
    """Make a context; return its id."""
    env = {"PATH": PATH, **fields.pop("env", {})}
    return str(agent.call("code.create", env=env, **fields)["id"])


def start(agent: Client, code: str, context: str | None, **fields: Any) -> Connection:
    """Begin a run."""
    connection = agent.connect()
    fields.setdefault("id", uuid.uuid4().hex)
    connection.header(op="code.run", code=code, context=context, **fields)
    return connection


def run(agent: Client, code: str, context: str | None, **fields: Any) -> Ran:
    """Run code to its end."""
    with start(agent, code, context, **fields) as connection:
        return gather(connection)


def gather(found: Iterable[Frame]) -> Ran:
    """Return what the frames say; `record` is that of EXITED or the envelope of ERROR."""
    streams: dict[int, bytearray] = {}
    record: dict[str, Any] = {}
    for frame in found:
        if frame.kind in {Kind.STDOUT, Kind.STDERR, Kind.RESULT}:
            piece = frames.decode_output(frame.payload)
            streams.setdefault(frame.kind, bytearray()).extend(piece.data)
        elif frame.kind in {Kind.EXITED, Kind.ERROR}:
            record = json.loads(frame.payload)
    lines = streams.get(Kind.RESULT, bytearray()).decode().splitlines()
    return Ran(streams.get(Kind.STDOUT, bytearray()).decode(), list(map(json.loads, lines)), record)
