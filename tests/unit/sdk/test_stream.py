"""Frames become events: nothing lost, nothing repeated, no character cut; events become results."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll import errors
from atoll.sdk import _stream
from atoll.sdk._stream import Collector, Reader, check_exit
from atoll.wire import frames
from atoll.wire.frames import Kind
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

REQUEST = ExecRequest(command="true")


def frame(kind: Kind, **payload: Any) -> bytes:
    return frames.encode(kind, json.dumps(payload).encode())


def out(offset: int, data: bytes, kind: Kind = Kind.STDOUT, seq: int = 0) -> bytes:
    return frames.encode_output(kind, seq, offset, data)


EXIT = frame(Kind.EXITED, exit_code=0)


def read(reader: Reader, *pieces: bytes) -> list[ExecEvent]:
    return [event for piece in pieces for event in reader.feed(piece)]


def test_events_come_in_order_and_end_with_the_exit() -> None:
    reader = Reader()
    events = read(
        reader,
        frame(Kind.STARTED, pid=7),
        out(0, b"a", seq=0),
        frames.encode(Kind.HEARTBEAT),
        out(1, b"b", Kind.STDERR, seq=1),
        frame(Kind.EXITED, exit_code=3, duration=0.5, stdout_bytes=1, stderr_bytes=1, new=1),
    )
    assert events == [
        Started(pid=7),
        Stdout(data=b"a", text="a", seq=0, offset=0),
        Stderr(data=b"b", text="b", seq=1, offset=1),
        Exited(exit_code=3, duration=0.5, stdout_bytes=1, stderr_bytes=1),
    ]
    assert reader.finished
    assert read(reader, out(2, b"late")) == []


@given(
    st.lists(st.tuples(st.sampled_from([Kind.STDOUT, Kind.STDERR]), st.binary(min_size=1))),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30)), max_size=4),
)
def test_output_is_exact_however_often_the_stream_is_lost(
    pieces: list[tuple[Kind, bytes]], losses: list[tuple[int, int]]
) -> None:
    """Each loss cuts the answer anywhere; the next one starts up to 30 bytes too early."""
    reader, got = Reader(), {Kind.STDOUT: b"", Kind.STDERR: b""}

    def take(data: bytes) -> None:
        for event in reader.feed(data):
            assert not isinstance(event, Gap)
            if isinstance(event, Stdout | Stderr):
                got[Kind.STDOUT if isinstance(event, Stdout) else Kind.STDERR] += event.data

    def answer(start: int) -> bytes:
        body, offset = frame(Kind.STARTED, pid=1), 0
        for kind, data in pieces:
            if offset + len(data) > start:
                body += out(offset, data, kind)
            offset += len(data)
        return body + EXIT

    start = 0
    for cut, too_early in losses:
        if not reader.finished:
            take(answer(start)[:cut])
            start = max(0, reader.resume() - too_early)
    if not reader.finished:
        take(answer(start))
    for kind, data in got.items():
        assert data == b"".join(piece for k, piece in pieces if k == kind)


def test_started_is_told_once_also_after_a_resume() -> None:
    reader = Reader()
    read(reader, frame(Kind.STARTED, pid=1), out(0, b"abc"))
    assert reader.resume() == 3
    assert read(reader, frame(Kind.STARTED, pid=1), EXIT) == [Exited(exit_code=0)]


def test_output_missing_after_a_resume_is_a_gap() -> None:
    reader = Reader()
    read(reader, out(0, b"abc"))
    reader.resume()
    events = read(reader, out(10, b"k", seq=4))
    assert events[0] == Gap(from_offset=3, to_offset=10, reason="lost", seq=4, offset=3)
    assert reader.position == 11


def test_a_gap_that_was_told_is_told_once() -> None:
    reader = Reader()
    told = frame(Kind.GAP, from_offset=0, to_offset=5, reason="replay")
    assert [type(event) for event in read(reader, told, told, out(5, b"x"))] == [Gap, Stdout]


def test_a_character_is_never_cut_and_each_output_has_a_decoder_of_its_own() -> None:
    reader = Reader()
    events = read(
        reader,
        out(0, b"a\xe2\x82"),
        out(3, "ü".encode(), Kind.STDERR),
        out(5, b"\xac"),
    )
    assert [event.text for event in events if isinstance(event, Stdout | Stderr)] == [
        "a",
        "ü",
        "€",
    ]


def test_a_character_that_is_never_completed_is_shown_before_the_exit() -> None:
    reader = Reader()
    events = read(reader, out(0, b"\xe2\x82"), EXIT)
    assert events[1] == Stdout(data=b"", text="\ufffd", offset=2)
    assert isinstance(events[2], Exited)


def test_another_encoding_is_used_for_text() -> None:
    events = read(Reader("latin-1"), out(0, b"\xe9"))
    assert [event.text for event in events if isinstance(event, Stdout)] == ["é"]
    assert read(Reader("base64"), out(0, b"x"))


def test_an_error_ends_the_stream_as_an_event() -> None:
    reader = Reader()
    events = read(reader, frame(Kind.ERROR, code="SANDBOX_DESTROYED", message="gone"))
    assert isinstance(events[0], Failed)
    assert events[0].error["code"] == "SANDBOX_DESTROYED"
    assert reader.finished


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff\xff",
        out(0, b"")[:-16][:1] + b"\0\0\0\x02ab",
        frames.encode(Kind.EXITED, b"{}"),
        frames.encode(Kind.EXITED, b'{"exit_code": "zero"}'),
        frames.encode(Kind.STARTED, b"<html>"),
        frames.encode(Kind.ERROR, b"[]"),
    ],
)
def test_garbage_is_a_typed_error_and_never_an_exit_code(garbage: bytes) -> None:
    with pytest.raises(errors.VersionMismatchError):
        read(Reader(), garbage)


def test_any_frame_counts_as_progress_until_it_is_asked() -> None:
    reader = Reader()
    assert not reader.progressed()
    read(reader, frames.encode(Kind.HEARTBEAT))
    assert reader.progressed()
    assert not reader.progressed()


def collect(*events: ExecEvent, limit: int = 100) -> Collector:
    collector = Collector(limit)
    for event in events:
        collector.add(event)
    return collector


def test_a_result_has_the_bytes_of_both_outputs() -> None:
    collector = collect(Started(pid=1), Stdout(data=b"a"), Stderr(data=b"\xff"), Stdout(data=b"b"))
    exited = Exited(exit_code=0, duration=1.5, stdout_bytes=2, stderr_bytes=1)
    result = collector.result(exited, REQUEST, "utf-8")
    assert (result.stdout_bytes, result.stderr_bytes) == (b"ab", b"\xff")
    assert (result.stdout, result.stderr) == ("ab", "\ufffd")
    assert (result.success, result.truncated, result.duration) == (True, False, 1.5)


def test_a_result_that_is_not_all_says_so_with_the_true_counts() -> None:
    cut = collect(Stdout(data=b"abcdef"), limit=4).result(Exited(exit_code=0), REQUEST, "utf-8")
    assert (cut.stdout_bytes, cut.truncated, cut.stdout_total) == (b"abcd", True, 6)
    told = Exited(exit_code=0, truncated=True, stderr_bytes=9)
    agent = collect(Stderr(data=b"abc")).result(told, REQUEST, "utf-8")
    assert (agent.truncated, agent.stderr_total) == (True, 9)
    gap = collect(Gap(from_offset=0, to_offset=1, reason="lost"))
    assert gap.result(Exited(exit_code=0), REQUEST, "utf-8").truncated


def test_a_result_can_be_read_as_base64() -> None:
    result = collect(Stdout(data=b"\0\1")).result(Exited(exit_code=0), REQUEST, "base64")
    assert result.stdout == "AAE="


@pytest.mark.parametrize(
    ("exited", "error"),
    [
        (Exited(exit_code=143, signal="SIGTERM", timed_out=True), errors.TimeoutError),
        (Exited(exit_code=137, cancelled=True), errors.OperationInterruptedError),
        (Exited(exit_code=7, session_ended=True), errors.SessionTerminatedError),
        (Exited(exit_code=0, session_ended=True), errors.SessionTerminatedError),
        (Exited(exit_code=1), errors.CommandFailedError),
    ],
)
def test_an_end_without_a_result_is_an_error_that_holds_what_there_is(
    exited: Exited, error: type[errors.SandboxError]
) -> None:
    result = collect(Stdout(data=b"partial")).result(exited, REQUEST, "utf-8")
    with pytest.raises(error) as caught:
        check_exit(exited, result, check=True)
    assert type(caught.value) is error
    assert caught.value.result.stdout == "partial"
    assert caught.value.context["exit_code"] == exited.exit_code


def test_a_failed_check_shows_the_end_of_stderr() -> None:
    result = collect(Stderr(data=b"boom\n")).result(Exited(exit_code=2), REQUEST, "utf-8")
    with pytest.raises(errors.CommandFailedError, match="exit code 2: boom"):
        check_exit(Exited(exit_code=2), result, check=True)


def test_a_program_that_exits_non_zero_is_a_result() -> None:
    result = collect().result(Exited(exit_code=255), REQUEST, "utf-8")
    assert check_exit(Exited(exit_code=255), result, check=False) is result


def test_a_failure_keeps_the_output_that_came_before() -> None:
    event = Failed(error=errors.SandboxDestroyedError("gone").to_wire())
    error = _stream.failure(event, collect(Stdout(data=b"some")), REQUEST, "utf-8")
    assert isinstance(error, errors.SandboxDestroyedError)
    assert error.result.stdout == "some"


@given(st.binary(max_size=300), st.integers(1, 50))
def test_standard_input_arrives_whole_behind_its_header(data: bytes, piece: int) -> None:
    request = _stream.with_input(REQUEST)
    got = list(frames.Decoder().feed(_stream.input_frames(request, data)))
    assert (got[0].kind, got[-1].kind) == (Kind.HEADER, Kind.STDIN_CLOSE)
    assert json.loads(got[0].payload) == {"command": "true", "stdin": True}
    assert b"".join(frame.payload for frame in got[1:-1]) == data


def test_large_input_is_cut_into_frames_below_the_limit() -> None:
    sizes = [len(piece) for piece in _stream.stdin_frames(bytes(3 << 20))]
    assert len(sizes) == 3
    assert max(sizes) <= frames.MAX_FRAME


def test_text_as_input_is_utf8() -> None:
    assert "ü".encode() in _stream.input_frames(REQUEST, "ü")


def test_a_waiting_caller_lets_the_agent_cut_output_unless_it_looks_on() -> None:
    assert _stream.for_result(REQUEST, live=False).buffered
    assert not _stream.for_result(REQUEST, live=True).buffered


def test_a_handle_has_no_shell_state() -> None:
    handle = _stream.for_handle(REQUEST, pipe=True, pty=True, cols=100, rows=30)
    assert (handle.open_stdin, handle.pty, handle.cols, handle.rows) == (True, True, 100, 30)
    assert not handle.shell_state
