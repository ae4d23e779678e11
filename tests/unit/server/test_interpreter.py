import json

from atoll.errors import KernelDiedError
from atoll.server.interpreter import CodeForm
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind

RESULT = frames.encode_output(Kind.RESULT, 0, 0, b'{"type": "result", "text": "1"}\n')[5:]


def test_server_sent_events_and_lines_are_the_same_objects() -> None:
    for type, pattern in (
        ("text/event-stream", b"data: %s\n\n"),
        ("application/x-ndjson", b"%s\n"),
    ):
        form = CodeForm(type, pattern, "r-1")
        before, after = pattern.split(b"%s")
        data = form.frame(Frame(Kind.RESULT, RESULT))
        assert json.loads(data.removeprefix(before).removesuffix(after)) == {
            "type": "result", "text": "1",
        }  # fmt: skip
        assert form.frame(Frame(Kind.STARTED, b'{"pid": 1}')) == b""


def test_a_heartbeat_is_a_comment_where_there_are_comments() -> None:
    assert CodeForm("text/event-stream", b"%s", "r").frame(Frame(Kind.HEARTBEAT, b"")) != b""
    assert CodeForm("application/x-ndjson", b"%s", "r").frame(Frame(Kind.HEARTBEAT, b"")) == b""


def test_an_error_has_its_code_and_the_request() -> None:
    envelope = json.dumps(KernelDiedError("died").to_wire()).encode()
    told = json.loads(CodeForm("x", b"%s", "r-1").frame(Frame(Kind.ERROR, envelope)))
    assert (told["type"], told["ename"], told["code"]) == ("error", "KERNEL_DIED", "KERNEL_DIED")
    assert told["requestId"] == "r-1"
