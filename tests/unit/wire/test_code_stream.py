import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll import errors
from atoll.wire import frames
from atoll.wire.agent import OUTPUT_LIMIT
from atoll.wire.code_stream import CodeEvent, CodeReader, Collector, event_shape, timed_out
from atoll.wire.frames import Kind
from atoll.wire.interpreter import CodeResult, ExecutionComplete, ExecutionError, LateOutput
from atoll.wire.process import Failed, Gap, Started, Stderr, Stdout

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PIECES = [
    (Kind.STDOUT, "é\n".encode()[:1]),
    (Kind.STDOUT, "é\n".encode()[1:]),
    (Kind.RESULT, b'{"type": "result", '),
    (Kind.STDERR, b"e"),
    (Kind.RESULT, b'"text": "1"}\n{"type": "late", "name": "stdout", "text": "x"}\n'),
]


def _stream(**record: Any) -> Iterator[bytes]:
    yield frames.encode_json(Kind.STARTED, {"pid": 3, "seq": 0, "offset": 0})
    offset = 0
    for seq, (kind, data) in enumerate(PIECES, 1):
        yield frames.encode_output(kind, seq, offset, data)
        offset += len(data)
    yield frames.encode(Kind.HEARTBEAT)
    yield frames.encode_json(Kind.EXITED, {"exit_code": 0, "execution_count": 4, **record})


def _read(chunks: list[bytes], reader: CodeReader | None = None) -> list[CodeEvent]:
    reader = reader or CodeReader()
    return [event for chunk in chunks for event in reader.feed(chunk)]


@given(st.lists(st.integers(0, 400)))
def test_events_are_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    data = b"".join(_stream())
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    events = _read([data[a:b] for a, b in pairwise(places)])
    assert "".join(event.text for event in events if isinstance(event, Stdout)) == "é\n"
    assert [event.text for event in events if isinstance(event, CodeResult)] == ["1"]
    assert isinstance(events[-1], ExecutionComplete)
    assert events[-1].execution_count == 4


def test_what_comes_again_after_a_lost_connection_is_cut() -> None:
    data = list(_stream())
    reader = CodeReader()
    seen = _read(data[:5], reader)
    assert reader.progressed()
    assert not reader.progressed()
    assert reader.resume() == reader.position > 0
    seen += _read(data, reader)
    assert [event.text for event in seen if isinstance(event, CodeResult)] == ["1"]
    assert sum(isinstance(event, Started) for event in seen) == 1
    assert _read(data, reader) == []  # finished


def test_what_is_missing_is_a_gap_and_the_result_in_it_is_left_out() -> None:
    data = list(_stream())
    reader = CodeReader()
    _read(data[:4], reader)
    reader.resume()
    events = _read(data[5:], reader)
    assert isinstance(events[0], Gap)
    assert not [event for event in events if isinstance(event, CodeResult)]
    assert [event for event in events if isinstance(event, LateOutput)]
    gap = {"from_offset": 99, "to_offset": 200}
    told = _read([frames.encode_json(Kind.GAP, gap)] * 2, CodeReader())
    assert [type(event) for event in told] == [Gap]


def test_an_error_ends_the_stream() -> None:
    (event,) = _read([frames.encode_json(Kind.ERROR, {"code": "KERNEL_DIED"})])
    assert isinstance(event, Failed)
    assert event_shape(event)["ename"] == "KERNEL_DIED"


def test_a_character_that_is_never_completed_is_shown_at_the_end() -> None:
    data = [
        frames.encode_output(Kind.STDOUT, 0, 0, b"\xc3"),
        frames.encode_json(Kind.EXITED, {"exit_code": 1, "timed_out": True}),
    ]
    events = _read(data)
    assert "".join(event.text for event in events if isinstance(event, Stdout)) == "\ufffd"


def test_a_forged_line_harms_nothing_but_itself() -> None:
    line = b'{"type": "result", "text": 3}\n{"type": "new"}\n'
    (event,) = _read([frames.encode_output(Kind.RESULT, 0, 0, line)])
    assert isinstance(event, CodeResult)
    assert "cannot be read" in (event.text or "")


def test_garbage_and_lines_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.VersionMismatchError):
        _read([frames.encode(Kind.EXITED, b"{")])
    monkeypatch.setattr("atoll.wire.code_stream.MAX_LINE", 10)
    with pytest.raises(errors.VersionMismatchError):
        _read([frames.encode_output(Kind.RESULT, 0, 0, b"x" * 11)])


def _collected(*events: CodeEvent) -> Any:
    collector = Collector()
    for event in events:
        collector.add(event)
    return collector.result("code", "ctx", NOW)


def test_a_result_is_put_together_from_events() -> None:
    whole = _collected(
        Started(pid=1),
        Stdout(data=b"a", text="a"),
        Stdout(data=b"", text=""),
        Stderr(data=b"b", text="b"),
        CodeResult(type="display", text="old", display_id="d"),
        CodeResult(type="update", text="new", display_id="d"),
        CodeResult(type="update", text="other", display_id="e"),
        LateOutput(name="stdout", text="x"),
        ExecutionError(name="E"),
        ExecutionComplete(execution_count=3, restarted=True),
    )
    assert (whole.logs.stdout, whole.logs.stderr) == (["a"], ["b"])
    assert [(one.type, one.text) for one in whole.results] == [("display", "new")]
    assert (whole.execution_count, whole.restarted, whole.error.name) == (3, True, "E")
    assert len(whole.late) == 1
    assert _collected(CodeResult(text="1"), CodeResult(type="clear")).results == []


def test_more_than_the_limit_is_cut_and_said() -> None:
    big = "x" * (OUTPUT_LIMIT - 1)
    whole = _collected(Stdout(data=b"", text=big), Stdout(data=b"", text="yz"))
    assert whole.truncated
    assert [len(piece) for piece in whole.logs.stdout] == [OUTPUT_LIMIT - 1, 1]
    lines = _collected(*(Stdout(data=b"", text=text) for text in ("a", "b\n", "c\n", "")))
    assert lines.logs.stdout == ["ab\n", "c\n"]
    assert _collected(Gap(from_offset=0, to_offset=1, reason="lost")).truncated


@pytest.mark.parametrize("restarted", [True, False])
def test_a_timeout_says_what_became_of_the_variables(restarted: bool) -> None:
    error = timed_out(_collected(ExecutionComplete(restarted=restarted)), with_result=True)
    assert ("gone" in error.message) is restarted
    assert error.context["result"]["restarted"] is restarted


def test_events_have_the_shapes_of_0_12() -> None:
    shapes = [
        event_shape(event)
        for event in (
            Started(pid=1),
            Stdout(data=b"", text=""),
            Stderr(data=b"e", text="e"),
            CodeResult(type="display", text="1", display_id="d"),
            CodeResult(text="2"),
            ExecutionError(name="E", message="m", traceback=["t"], line_number=2),
            ExecutionComplete(execution_count=1),
            ExecutionComplete(execution_count=1, reason="timeout", restarted=True),
        )
    ]
    assert shapes == [
        {},
        {},
        {"type": "stderr", "text": "e"},
        {"type": "result", "text": "1", "kind": "display", "displayId": "d"},
        {"type": "result", "text": "2"},
        {"type": "error", "ename": "E", "evalue": "m", "traceback": ["t"], "lineNumber": 2},
        {"type": "execution_complete", "execution_count": 1},
        {
            "type": "execution_complete", "execution_count": 1, "reason": "timeout",
            "restarted": True,
        },
    ]  # fmt: skip
    assert event_shape(LateOutput(name="stdout", text="x"))["type"] == "late"
    assert event_shape(Gap(from_offset=0, to_offset=1, reason="r"))["type"] == "gap"
    assert json.dumps(shapes)
