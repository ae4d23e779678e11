"""Commands: an argv in, server-sent events with base64 of the output's exact bytes out.

The words are quoted and run by the sandbox's shell, as the original does: a missing program is
exit code 127 with the shell's message, and a builtin like ``command -v`` works. Without a session
the shell is a fresh one. A caller who leaves ends the command.
"""

import base64
import math
import secrets
import shlex
from typing import Annotated

import msgspec
from starlette.requests import Request

from atoll.engine.commands import calls
from atoll.engine.engine import Engine
from atoll.engine.link.link import error_of
from atoll.engine.sandbox import Sandbox
from atoll.errors import SandboxError
from atoll.server import answer, shapes
from atoll.server.answer import Stream
from atoll.server.bridge import requests
from atoll.server.bridge.failures import TRANSPORT, Body, invalid
from atoll.server.exec import check_command
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind
from atoll.wire.process import ExecRequest
from atoll.wire.records import Exit, Gap

FAILED = "exec_error"
MAX_TIMEOUT = 100 * 365 * 24 * 3600 * 1000
"""Milliseconds: what the agent's clock can count, far beyond any command."""


class Exec(msgspec.Struct):
    """Body of ``exec``. Without `timeout_ms` the command has no time limit of its own."""

    argv: Annotated[list[str], msgspec.Meta(min_length=1)]
    timeout_ms: float | None = None
    cwd: str | None = None


async def run(engine: Engine, request: Request) -> Stream:
    """Run a command and answer with its events."""
    wanted = await requests.body(engine, request, Exec)
    session = requests.session(request)
    command = requested(wanted, session)
    found = requests.sandbox(engine, request)
    return Stream(lambda stream: _run(found, command, stream, request.scope["request_id"]))


def requested(wanted: Exec, session: str | None) -> ExecRequest:
    """Return what the engine is asked for.

    Raises:
        SandboxError: it cannot be run.
    """
    check_command(wanted.argv if wanted.argv[0].strip() else ["''", *wanted.argv[1:]])
    return ExecRequest(
        command=shlex.join(wanted.argv),
        timeout_ms=_limit(wanted.timeout_ms),
        cwd=None if wanted.cwd is None else requests.workspace_path(wanted.cwd, "cwd"),
        session=session,
        shell_state=session is not None,
    )


def _limit(timeout_ms: float | None) -> int | None:
    if timeout_ms is None:
        return None
    if not 0 < timeout_ms <= MAX_TIMEOUT:
        raise invalid("timeout_ms must be a positive number")
    return math.ceil(timeout_ms)


async def _run(found: Sandbox, wanted: ExecRequest, stream: Stream, request_id: str) -> None:
    await requests.known_session(found, wanted.session)
    id = secrets.token_hex(12)
    source = calls.exec(found, wanted, id, cancel_on_drop=True, stdin=None)
    await answer.pump(source, Events(wanted.timeout_ms), stream, request_id)


class Events:
    """The form of the stream: see `shapes.Form`.

    Args:
        timeout_ms: the command's time limit, for the text of the error when it passes.
    """

    content_type = shapes.SSE

    def __init__(self, timeout_ms: int | None) -> None:
        self._timeout_ms = timeout_ms
        self._ended = False

    def frame(self, frame: Frame) -> bytes:
        """Return the event of *frame*, nothing for those the bridge does not have."""
        match frame.kind:
            case _ if self._ended:
                return b""
            case Kind.STDOUT:
                return _output("stdout", frame)
            case Kind.STDERR:
                return _output("stderr", frame)
            case Kind.HEARTBEAT:
                return b": heartbeat\n\n"
            case Kind.EXITED:
                return self._exit(msgspec.json.decode(frame.payload, type=Exit))
            case Kind.GAP:
                gap = msgspec.json.decode(frame.payload, type=Gap)
                return self._error(f"output was lost ({gap.reason})", TRANSPORT)
            case Kind.ERROR:
                return self.error(error_of(frame))
        return b""

    def error(self, error: SandboxError) -> bytes:
        """Return the last event of a command whose outcome is not known."""
        return self._error(f"exec failed: {error.message}", TRANSPORT)

    def _exit(self, ended: Exit) -> bytes:
        if ended.timed_out:  # its exit code is that of our signal, not of the command
            return self._error(f"command timed out after {self._timeout_ms} ms", FAILED)
        return _event("exit", msgspec.json.encode({"exit_code": ended.exit_code}))

    def _error(self, text: str, code: str) -> bytes:
        self._ended = True
        return _event("error", msgspec.json.encode(Body(text, code)))


def _output(name: str, frame: Frame) -> bytes:
    return _event(name, base64.b64encode(frames.decode_output(frame.payload).data))


def _event(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
