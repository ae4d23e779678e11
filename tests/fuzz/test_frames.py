"""The decoder of frames, fed by a hostile peer: bounded, and only errors of its own."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from atoll.wire import frames
from atoll.wire.frames import Decoder, Frame, FrameError
from fuzz.examples import examples

BOUND = 64
HEAD = 5

_LENGTHS = st.integers(0, BOUND + 2) | st.sampled_from([1 << 16, 1 << 31, (1 << 32) - 1])
_LYING = st.builds(
    lambda kind, length, body: struct.pack(">BI", kind, length) + body,
    st.integers(0, 255), _LENGTHS, st.binary(max_size=BOUND + 2),
)  # fmt: skip
_HONEST = st.builds(frames.encode, st.integers(0, 255), st.binary(max_size=BOUND))
_EDGE = st.builds(
    frames.encode, st.integers(0, 255), st.sampled_from([BOUND, BOUND + 1]).map(bytes)
)
_STREAM = st.lists(_HONEST | _LYING | _EDGE | st.binary(max_size=12), max_size=6).map(b"".join)
_CUTS = st.lists(st.integers(1, BOUND), min_size=1, max_size=6)


def _pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Return *stream* in pieces of the lengths *cuts*, over and over."""
    found, at = list[bytes](), 0
    while at < len(stream):
        step = cuts[len(found) % len(cuts)]
        found.append(stream[at : at + step])
        at += step
    return found


def _read(pieces: list[bytes]) -> tuple[list[Frame], bytes | None]:
    """Return the frames and what is left over; None: the peer was refused."""
    decoder, found = Decoder(BOUND), list[Frame]()
    for piece in pieces:
        try:
            for frame in decoder.feed(piece):
                assert len(frame.payload) <= BOUND
                found.append(frame)
        except FrameError:
            return found, None
        assert decoder.pending < HEAD + BOUND
    rest = decoder.take_rest()
    assert len(rest) < HEAD or int.from_bytes(rest[1:HEAD], "big") <= BOUND
    return found, rest


@examples(200)
@given(_STREAM, _CUTS)
def test_cuts_change_nothing_and_no_more_than_a_frame_is_kept(
    stream: bytes, cuts: list[int]
) -> None:
    whole, rest = _read([stream])
    assert _read(_pieces(stream, cuts)) == (whole, rest)
    told = b"".join(frames.encode(*frame) for frame in whole)
    assert stream.startswith(told)
    assert rest is None or stream == told + rest


@examples(100)
@given(st.binary(max_size=40))
def test_the_payload_of_output_has_its_position_or_is_refused(payload: bytes) -> None:
    try:
        seq, offset, data = frames.decode_output(payload)
    except FrameError:
        return
    assert frames.encode_output(5, seq, offset, data)[HEAD:] == payload
