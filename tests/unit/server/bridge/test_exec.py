import json
from typing import Any

import pytest

from atoll.errors import InternalError, SandboxError
from atoll.server.bridge.exec import Events, Exec, requested
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind


def frame(kind: Kind, **fields: Any) -> Frame:
    return Frame(kind, json.dumps(fields).encode())


def output(kind: Kind, data: bytes) -> Frame:
    return Frame(kind, frames.encode_output(kind, 0, 0, data)[5:])


def test_output_is_the_base64_of_its_exact_bytes() -> None:
    events = Events(None)
    assert events.frame(frame(Kind.STARTED, pid=7)) == b""
    assert events.frame(output(Kind.STDOUT, b"\0\xff\n")) == b"event: stdout\ndata: AP8K\n\n"
    assert events.frame(output(Kind.STDERR, b"oops")) == b"event: stderr\ndata: b29wcw==\n\n"
    assert events.frame(Frame(Kind.HEARTBEAT, b"")) == b": heartbeat\n\n"
    assert (
        events.frame(frame(Kind.EXITED, exit_code=3)) == b'event: exit\ndata: {"exit_code":3}\n\n'
    )


@pytest.mark.parametrize(
    ("last", "code", "text"),
    [
        (
            frame(Kind.EXITED, exit_code=137, timed_out=True),
            *("exec_error", "command timed out after 500 ms"),
        ),
        (
            frame(Kind.GAP, from_offset=0, to_offset=9, reason="space"),
            *("exec_transport_error", "output was lost (space)"),
        ),
        (
            Frame(Kind.ERROR, json.dumps(InternalError("x").to_wire()).encode()),
            *("exec_transport_error", "exec failed: x"),
        ),
    ],
)
def test_an_outcome_that_is_not_known_is_no_exit_code(last: Frame, code: str, text: str) -> None:
    events = Events(500)
    told = events.frame(last)
    body = json.dumps({"error": text, "code": code}, separators=(",", ":")).encode()
    assert told == b"event: error\ndata: " + body + b"\n\n"
    assert events.frame(frame(Kind.EXITED, exit_code=0)) == b""


def test_words_stay_words() -> None:
    wanted = requested(Exec(["echo", "a b", "$HOME", "it's\n"]), None)
    assert wanted.command == "echo 'a b' '$HOME' 'it'\"'\"'s\n'"
    assert (wanted.timeout_ms, wanted.shell_state, wanted.cwd) == (None, False, None)


def test_limits_are_rounded_up() -> None:
    assert requested(Exec(["x"], timeout_ms=0.5), None).timeout_ms == 1


@pytest.mark.parametrize("wanted", [Exec(["a\0b"]), Exec(["x"], timeout_ms=0), Exec(["x"], -1),
                                    Exec(["x"], float("inf")), Exec(["x"], cwd="/etc")])  # fmt: skip
def test_what_cannot_be_run_is_refused(wanted: Exec) -> None:
    with pytest.raises(SandboxError):
        requested(wanted, None)
