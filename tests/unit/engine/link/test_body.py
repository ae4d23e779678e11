import pytest

from atoll.engine.link.body import Body
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind

STREAM = (
    frames.encode(Kind.DATA, b"abc")
    + frames.encode(Kind.DATA)
    + frames.encode(Kind.HEARTBEAT)
    + frames.encode(Kind.DATA, b"de")
    + frames.encode(Kind.END, b"{}")
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_body_is_handed_on_however_it_is_cut(size: int) -> None:
    body, content, others = Body(), b"", []
    for start in range(0, len(STREAM), size):
        for piece in body.feed(STREAM[start : start + size]):
            if isinstance(piece, bytes):
                content += piece
            else:
                others.append(piece)
    assert content == b"abcde"
    assert others == [Frame(Kind.HEARTBEAT, b""), Frame(Kind.END, b"{}")]


def test_a_piece_is_handed_on_before_its_frame_is_complete() -> None:
    body = Body()
    head = frames.encode(Kind.DATA, b"x" * 1000)[:10]
    assert list(body.feed(head)) == [b"xxxxx"]
    whole = b"y" * 100
    assert next(body.feed(whole)) is whole, "copied"


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.END])
def test_a_frame_over_the_limit_is_an_error(kind: Kind) -> None:
    with pytest.raises(frames.FrameError):
        list(Body().feed(bytes([kind]) + b"\xff\xff\xff\xff"))
