import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from atoll.errors import ValidationFailedError
from atoll.sdk import _logs
from atoll.sdk._logs import LineSearch, LogCollector, LogEncoder, LogReader, Waits
from atoll.wire import frames
from atoll.wire.frames import Kind
from atoll.wire.process import (
    ExecEvent,
    Exited,
    Failed,
    Gap,
    ProcessInfo,
    ProcessLogs,
    ProcessStatus,
    Started,
    Stderr,
    Stdout,
    WaitForPort,
)


@pytest.mark.parametrize("cut", range(1, 14))
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_pattern_is_found_however_the_line_is_cut(cut: int, stream: Any) -> None:
    search = LineSearch(re.compile(r"on (\d+)$"))
    text = "x\nready on 8080\ny\n"
    assert search.feed(stream, text[:cut]) is None
    found = search.feed(stream, text[cut:])
    assert found is not None
    assert found.match is not None
    assert (found.line, found.match[1]) == ("ready on 8080", "8080")


def test_streams_do_not_make_a_line_together() -> None:
    search = LineSearch("ready")
    assert search.feed("stdout", "rea") is None
    assert search.feed("stderr", "dy") is None
    assert search.feed("stdout", "dy") == ("ready", None)


def test_an_expression_waits_while_more_could_make_it_longer() -> None:
    search = LineSearch(re.compile(r"port \d+"))
    assert search.feed("stdout", "port 80") is None
    assert search.feed("stdout", "80") is None
    found = search.feed("stdout", " now")
    assert found is not None
    assert found.match is not None
    assert found.match[0] == "port 8080"


def test_a_pause_shows_what_an_unfinished_line_has() -> None:
    search = LineSearch(re.compile("Password: $"))
    assert search.feed("stderr", "Password: ") is None
    assert search.pause() is not None
    assert LineSearch("x").pause() is None


def test_text_is_found_at_once_and_carriage_returns_are_no_part_of_a_line() -> None:
    assert LineSearch("% done").feed("stdout", "10% done") == ("10% done", None)
    assert LineSearch("end").feed("stdout", "the end\r\n") == ("the end", None)


def test_of_an_endless_line_the_end_is_searched() -> None:
    search = LineSearch("needle")
    assert search.feed("stdout", "x" * 3_000_000) is None
    found = search.feed("stdout", "needle")
    assert found is not None
    assert len(found.line) == _logs.LONGEST_LINE


@pytest.mark.parametrize("pattern", ["", "a\nb", re.compile(b"bytes"), 7])
def test_what_cannot_be_looked_for_is_refused(pattern: Any) -> None:
    with pytest.raises(ValidationFailedError):
        LineSearch(pattern)


def read(reader: LogReader, *data: bytes) -> list[ExecEvent]:
    return list(reader.feed(b"".join(data)))


def test_a_reader_begins_at_its_offset_and_stops_at_the_end() -> None:
    reader = LogReader(2)
    assert reader.resume() == 2
    events = read(
        reader,
        frames.encode_output(Kind.STDOUT, 0, 0, b"abcd"),
        frames.encode_json(Kind.END, {"offset": 4}),
    )
    assert [e.data for e in events if isinstance(e, Stdout)] == [b"cd"]
    assert reader.finished
    assert reader.position == 4


def test_a_reader_knows_when_nothing_more_comes() -> None:
    reader = LogReader()
    read(reader, frames.encode_output(Kind.STDOUT, 0, 0, b"a"))
    assert not reader.quiet
    read(reader, frames.encode(Kind.HEARTBEAT))
    assert reader.quiet
    assert not reader.finished


def test_a_collector_says_when_something_is_missing() -> None:
    collector = LogCollector()
    for event in (Started(pid=1), Stdout(data=b"a"), Stderr(data=b"\xff")):
        collector.add(event)
    assert collector.result("p") == ProcessLogs(
        process_id="p", stdout_bytes=b"a", stderr_bytes=b"\xff"
    )
    collector.add(Gap(from_offset=0, to_offset=1, reason="x"))
    assert collector.result("p").truncated


def shown(event: ExecEvent) -> dict[str, Any]:
    data = LogEncoder("p").encode(event)
    assert data.startswith(b"data: ")
    found: dict[str, Any] = json.loads(data[6:])
    assert found.pop("processId") == "p"
    assert found.pop("timestamp").endswith("Z")
    return found


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (Stdout(data=b"a", text="a"), {"type": "stdout", "data": "a"}),
        (
            Stderr(data=b"\xff", text="\ufffd"),
            {"type": "stderr", "data": "\ufffd", "dataBase64": "/w=="},
        ),
        (
            Exited(exit_code=3),
            {"type": "exit", "data": "Process exited with code 3", "exitCode": 3},
        ),
        (Failed(error={"message": "lost"}), {"type": "error", "data": "lost"}),
        (
            Gap(from_offset=1, to_offset=5, reason="full"),
            {"type": "gap", "data": "full", "fromOffset": 1, "toOffset": 5},
        ),
    ],
)
def test_events_have_the_shapes_of_0_12(event: ExecEvent, fields: dict[str, Any]) -> None:
    assert shown(event) == fields


def test_0_12_has_no_event_for_the_start_of_a_log() -> None:
    assert LogEncoder("p").encode(Started(pid=1)) == b""
    assert b'"error"' in LogEncoder("p").error("gone")


def test_long_waits_are_cut_into_requests_and_end_on_time() -> None:
    waits = Waits(70_000, 100.0, 30.0)
    assert [waits.next(now) for now in (100.0, 130.0, 160.0, 170.0)] == [
        30_000,
        30_000,
        10_000,
        None,
    ]
    assert Waits(0, 0.0, 30.0).next(5.0) == 0, "who waits for no time is told once"
    endless = Waits(None, 0.0, 30.0)
    assert [endless.next(0.0), endless.next(1e9)] == [30_000, 30_000]


@pytest.mark.parametrize(
    ("status", "found"),
    [(200, (200, 200)), (range(200, 400), (200, 399)), ((200, 299), (200, 299))],
)
def test_a_status_is_one_or_a_range(status: Any, found: tuple[int, int]) -> None:
    assert _logs.status_range(status) == found


@pytest.mark.parametrize(
    "status",
    [
        0,
        600,
        range(0),
        (300, 200),
        range(100),
        None,
        "200",
        200.5,
        (200,),
        (1, 2, 3),
        ("200", "299"),
    ],
)
def test_a_status_that_cannot_come_is_refused(status: Any) -> None:
    with pytest.raises(ValidationFailedError):
        _logs.status_range(status)


def test_a_wait_is_part_of_the_request() -> None:
    assert _logs.with_wait(WaitForPort(port=1), 5).wait_ms == 5


@pytest.mark.parametrize(
    ("info", "stderr", "words", "suggestion"),
    [
        ({"exit_code": 3}, b"oops\n", "exit code 3", "its last output: oops"),
        ({"exit_code": 137, "signal": "SIGKILL"}, b"", "signal SIGKILL", None),
    ],
)
def test_an_early_end_is_told_with_code_and_last_words(
    info: dict[str, Any], stderr: bytes, words: str, suggestion: str | None
) -> None:
    process = ProcessInfo(
        id="p",
        pid=1,
        command="x",
        status=ProcessStatus.FAILED,
        start_time=datetime.now(UTC),
        **info,
    )
    logs = ProcessLogs(process_id="p", stderr_bytes=stderr)
    error = _logs.exited_early(process, logs, "port 1 answered")
    assert words in error.message
    assert error.context["exit_code"] == info["exit_code"]
    assert error.suggestion == suggestion


def test_a_timeout_says_what_was_waited_for() -> None:
    error = _logs.not_ready("p", "port 1 did not answer", 1.5)
    assert error.message == "process 'p': port 1 did not answer within 1.5 s"
    assert isinstance(error, TimeoutError)
