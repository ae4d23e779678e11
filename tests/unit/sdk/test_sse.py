"""Server-sent events: the shapes of 0.12, and a parser that chunk edges cannot confuse."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import FileNotFoundError
from atoll.sdk import _sse
from atoll.sdk._sse import ExecEncoder, FileEncoder, SseParser
from atoll.wire.files import FileMeta
from atoll.wire.process import (
    ExecEvent,
    ExecRequest,
    Exited,
    Failed,
    Gap,
    Started,
    Stderr,
    Stdout,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def decoded(data: bytes) -> Any:
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    assert data.count(b"\n") == 2
    return json.loads(data[6:])


def shapes(*events: ExecEvent) -> list[Any]:
    encoder = ExecEncoder(ExecRequest(command="echo x"))
    return [decoded(encoder.encode(event, NOW)) for event in events]


def test_a_command_is_told_in_the_events_of_0_12() -> None:
    start, stdout, stderr, complete = shapes(
        Started(pid=9),
        Stdout(data=b"x\n", text="x\n"),
        Stderr(data=b"e", text="e"),
        Exited(exit_code=3, duration=0.25),
    )
    assert start == {
        "type": "start",
        "command": "echo x",
        "pid": 9,
        "timestamp": "2026-01-02T03:04:05Z",
    }
    assert stdout == {"type": "stdout", "data": "x\n"}
    assert stderr == {"type": "stderr", "data": "e"}
    assert (complete["type"], complete["exitCode"]) == ("complete", 3)
    assert complete["result"]["stdout"] == "x\n"
    assert complete["result"]["duration"] == 250


def test_output_that_is_not_utf8_keeps_its_bytes_in_an_extra_field() -> None:
    (event,) = shapes(Stdout(data=b"\xff", text="\ufffd"))
    assert event["dataBase64"] == "/w=="


def test_failures_and_gaps_are_events_too() -> None:
    failed, bare, gap = shapes(
        Failed(error={"code": "SANDBOX_DESTROYED", "message": "gone"}),
        Failed(error={"message": "?"}),
        Gap(from_offset=1, to_offset=5, reason="lost"),
    )
    assert failed == {"type": "error", "error": "gone", "code": "SANDBOX_DESTROYED"}
    assert bare == {"type": "error", "error": "?"}
    assert gap == {"type": "gap", "fromOffset": 1, "toOffset": 5, "reason": "lost"}
    error = decoded(_sse.encode_error(FileNotFoundError("no /x")))
    assert error == {"type": "error", "error": "no /x", "code": "FILE_NOT_FOUND"}


def test_an_event_is_stamped_with_the_time_it_is_encoded_at() -> None:
    event = decoded(ExecEncoder(ExecRequest(command="x")).encode(Started(pid=1)))
    stamped = datetime.fromisoformat(event["timestamp"])
    assert abs((datetime.now(UTC) - stamped).total_seconds()) < 60


def test_a_text_file_is_told_as_text_without_cutting_characters() -> None:
    encoder = FileEncoder(meta(binary=False))
    assert decoded(encoder.start())["mimeType"] == "text/plain"
    chunks = [decoded(encoder.chunk(piece))["data"] for piece in (b"a\xe2", b"\x82\xac")]
    assert chunks == ["a", "€"]
    assert decoded(encoder.end()) == {"type": "complete", "bytesRead": 4}


def test_a_binary_file_is_told_as_base64() -> None:
    assert decoded(FileEncoder(meta(binary=True)).chunk(b"\0\1"))["data"] == "AAE="


def meta(*, binary: bool) -> FileMeta:
    return FileMeta(
        path="/x", size=4, mime_type="text/plain", is_binary=binary, encoding="utf-8", etag="e"
    )


# X15: `printf 'a\r\nb\rc\342\200\250d\n'`, as it stands in an event; ends of all three kinds.
TEXT = "a\r\nb\rc\u2028d\n\x0b\x1c\x85"
STREAM = b"".join(
    b"data: " + json.dumps({"data": TEXT, "n": number}, ensure_ascii=False).encode() + end + end
    for number, end in enumerate([b"\n", b"\r\n", b"\r"] * 2)
)


def test_x15_events_survive_any_cut_and_all_line_ends() -> None:
    for cut in range(len(STREAM) + 1):
        parser = SseParser()
        events = [*parser.feed(STREAM[:cut]), *parser.feed(STREAM[cut:])]
        assert [event["n"] for event in events] == list(range(6))
        assert {event["data"] for event in events} == {TEXT}


@given(st.lists(st.integers(1, 7)))
def test_events_survive_many_small_chunks(sizes: list[int]) -> None:
    parser, rest = SseParser(), STREAM
    events: list[Any] = []
    for size in sizes:
        events += parser.feed(rest[:size])
        rest = rest[size:]
    events += parser.feed(rest)
    assert [event["n"] for event in events] == list(range(6))


def test_comments_names_and_several_data_lines_follow_the_standard() -> None:
    body = ': heartbeat\n\nevent: x\nid: 7\ndata: {"a":\ndata:1}\n\ndata: 2\n\n'
    assert list(SseParser().feed(body)) == [{"a": 1}, 2]


def test_data_that_is_not_json_is_an_error() -> None:
    with pytest.raises(ValueError):
        list(SseParser().feed(b"data: nonsense\n\n"))
