import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.wire import frames
from atoll.wire.frames import MAX_FRAME, Decoder, Frame, FrameError, Kind

some_frames = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=8)


@given(some_frames, st.integers(1, 7))
def test_frames_come_back_however_the_stream_is_cut(
    sent: list[tuple[int, bytes]], cut: int
) -> None:
    stream = b"".join(frames.encode(kind, payload) for kind, payload in sent)
    decoder = Decoder()
    got: list[Frame] = []
    for at in range(0, len(stream), cut):
        got += decoder.feed(stream[at : at + cut])
    assert got == [Frame(kind, payload) for kind, payload in sent]
    assert decoder.pending == 0


@given(st.binary(max_size=200))
def test_garbage_is_a_frame_error_or_waits_for_more(data: bytes) -> None:
    decoder = Decoder(max_frame=16)
    try:
        list(decoder.feed(data))
    except FrameError:
        return
    assert decoder.pending < 5 + 16


def test_an_oversized_frame_is_refused_before_its_payload_arrives() -> None:
    decoder = Decoder()
    with pytest.raises(FrameError):
        list(decoder.feed(b"\x05" + (MAX_FRAME + 1).to_bytes(4, "big")))
    with pytest.raises(FrameError):
        frames.encode(Kind.DATA, b"x" * (MAX_FRAME + 1))


def test_frames_before_an_oversized_one_are_not_lost() -> None:
    decoder = Decoder()
    found = decoder.feed(frames.encode(Kind.END) + b"\xff" * 5)
    assert next(found) == Frame(Kind.END, b"")
    with pytest.raises(FrameError):
        next(found)


def test_an_iteration_that_is_left_early_loses_nothing() -> None:
    decoder = Decoder()
    next(iter(decoder.feed(frames.encode(1, b"a") + frames.encode(2, b"b"))))
    assert list(decoder.feed(b"")) == [Frame(2, b"b")]


def test_output_carries_its_position() -> None:
    (frame,) = Decoder().feed(frames.encode_output(Kind.STDERR, 3, 1 << 40, b"\0data"))
    assert frame.kind == Kind.STDERR
    assert frames.decode_output(frame.payload) == (3, 1 << 40, b"\0data")
    with pytest.raises(FrameError):
        frames.decode_output(b"x" * 15)


def test_json_frames_hold_any_text() -> None:
    (frame,) = Decoder().feed(frames.encode_json(Kind.REPLY, {"a": "é\udcff\n"}))
    assert json.loads(frame.payload) == {"a": "é\udcff\n"}


def test_the_numbers_of_the_protocol_never_change() -> None:
    assert {kind.name: kind.value for kind in Kind} == {
        "HEADER": 1, "REPLY": 2, "ERROR": 3, "STARTED": 4, "STDOUT": 5, "STDERR": 6, "STDIN": 7,
        "STDIN_CLOSE": 8, "RESIZE": 9, "SIGNAL": 10, "CANCEL": 11, "EXITED": 12, "GAP": 13,
        "HEARTBEAT": 14, "DATA": 15, "END": 16, "EVENT": 17, "RESULT": 18,
    }  # fmt: skip
    assert frames.encode(Kind.STDIN, b"ab") == b"\x07\x00\x00\x00\x02ab"


def test_somebody_else_can_read_on() -> None:
    decoder = Decoder()
    reading = decoder.feed(frames.encode(Kind.REPLY, b"{}") + frames.encode(Kind.DATA, b"abc")[:6])
    assert next(reading).kind == Kind.REPLY
    reading.close()
    assert (decoder.take_rest(), decoder.pending) == (frames.encode_head(Kind.DATA, 3) + b"a", 0)
