import base64
import json
from typing import Any

from atoll.errors import FileNotFoundError
from atoll.server import shapes
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind


def frame(kind: Kind, body: Any = None) -> Frame:
    return Frame(kind, b"" if body is None else json.dumps(body).encode())


def output(kind: Kind, data: bytes, seq: int = 0, offset: int = 0) -> Frame:
    encoded = frames.encode_output(kind, seq, offset, data)
    return Frame(kind, encoded[5:])


ERROR = FileNotFoundError("gone", context={"path": "/x"})


def events(data: bytes) -> list[dict[str, Any]]:
    lines = [line for part in data.split(b"\n\n") for line in part.split(b"\n")]
    return [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]


def sse(*given: Frame) -> list[dict[str, Any]]:
    form = shapes.SseForm("cmd", "r1")
    return events(b"".join(form.frame(f) for f in given))


def test_frames_are_passed_on_unchanged() -> None:
    form = shapes.FramesForm("r1")
    sent = output(Kind.STDOUT, b"\0\xff", 3, 4)
    assert form.frame(sent) == frames.encode(sent.kind, sent.payload)


def test_errors_in_frames_carry_the_request() -> None:
    (sent,) = frames.Decoder().feed(
        shapes.FramesForm("r1").frame(frame(Kind.ERROR, ERROR.to_wire()))
    )
    body = json.loads(sent.payload)
    assert (body["code"], body["requestId"], body["context"]) == (
        "FILE_NOT_FOUND",
        "r1",
        {"path": "/x"},
    )
    assert body["timestamp"].endswith("Z")


def test_server_sent_events_have_the_shapes_of_0_12() -> None:
    start, out, err, done = sse(
        frame(Kind.STARTED, {"pid": 7}),
        output(Kind.STDOUT, b"a\r\n"),
        output(Kind.STDERR, b"b"),
        frame(Kind.EXITED, {"exit_code": 0, "timed_out": False}),
    )
    assert (start["type"], start["command"], start["pid"]) == ("start", "cmd", 7)
    assert (out["type"], out["data"]) == ("stdout", "a\r\n")
    assert (err["type"], err["data"]) == ("stderr", "b")
    assert (done["type"], done["exitCode"], done["result"]["success"]) == ("complete", 0, True)
    assert "timestamp" in start


def test_line_separators_never_break_an_event() -> None:
    form = shapes.SseForm("c", "r")
    data = form.frame(output(Kind.STDOUT, "a\u2028b\rc\n\nd".encode()))
    assert data.count(b"\n") == 3
    assert b"\r" not in data
    assert events(data)[0]["data"] == "a\u2028b\rc\n\nd"


def test_the_id_of_an_event_is_where_to_go_on_from() -> None:
    form = shapes.SseForm("c", "r")
    assert form.frame(output(Kind.STDERR, b"abc", 4, 10)).startswith(b"id: 13\ndata: ")
    assert form.frame(frame(Kind.STARTED, {"pid": 1})).startswith(b"data: ")


def test_a_character_is_never_cut_between_events() -> None:
    euro = "€".encode()
    found = sse(
        output(Kind.STDOUT, euro[:1]),
        output(Kind.STDERR, b"x"),
        output(Kind.STDOUT, euro[1:] + euro[:2]),
        frame(Kind.EXITED, {"exit_code": 0}),
    )
    assert "".join(e["data"] for e in found if e["type"] == "stdout") == "€\ufffd"


def test_bytes_that_are_not_text_come_along() -> None:
    (event,) = sse(output(Kind.STDOUT, b"\xff\xfe"))
    assert base64.b64decode(event["dataBase64"]) == b"\xff\xfe"


def test_heartbeats_are_comments() -> None:
    assert shapes.SseForm("c", "r").frame(frame(Kind.HEARTBEAT)) == b": heartbeat\n\n"


def test_errors_and_gaps_are_events() -> None:
    failed, gap = sse(
        frame(Kind.ERROR, ERROR.to_wire()),
        frame(Kind.GAP, {"from_offset": 1, "to_offset": 2, "reason": "ring"}),
    )
    assert (failed["type"], failed["error"], failed["code"]) == ("error", "gone", "FILE_NOT_FOUND")
    assert (gap["type"], gap["fromOffset"], gap["toOffset"]) == ("gap", 1, 2)


def test_ndjson_has_the_events_of_the_sdk() -> None:
    form = shapes.NdjsonForm("r1")
    given = [
        frame(Kind.STARTED, {"pid": 7}),
        output(Kind.STDOUT, b"\xff", 1, 2),
        frame(Kind.HEARTBEAT),
        frame(Kind.EXITED, {"exit_code": 3, "timed_out": True}),
        frame(Kind.ERROR, ERROR.to_wire()),
    ]
    lines = [json.loads(form.frame(f)) for f in given]
    assert [line["type"] for line in lines] == [
        "started",
        "stdout",
        "heartbeat",
        "exited",
        "failed",
    ]
    assert base64.b64decode(lines[1]["data"]) == b"\xff"
    assert (lines[1]["seq"], lines[1]["offset"]) == (1, 2)
    assert (lines[3]["exitCode"], lines[3]["timedOut"]) == (3, True)
    assert lines[4]["error"]["requestId"] == "r1"
