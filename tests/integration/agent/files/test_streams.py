import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import errors
from atoll.agent.files.streams import Interrupted, Stream
from atoll.wire.frames import MAX_FRAME, Decoder, Frame, Kind, encode


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, Stream]]:
    peer, ours = socket.socketpair()
    stream = Stream(ours, has_body=True)
    with peer, ours:
        yield peer, stream


def test_a_body_arrives_however_it_is_cut(pair: tuple[socket.socket, Stream]) -> None:
    peer, stream = pair
    wire = encode(Kind.DATA, b"one") + encode(Kind.DATA) + encode(Kind.DATA, b"two")
    wire += encode(Kind.END, b"{}")
    body = stream.body()
    received = b""
    for byte in wire[:-1]:
        peer.sendall(bytes([byte]))
        if len(received) < 6 and byte in b"onetw" and byte != Kind.DATA:
            received += bytes(next(body))
    peer.sendall(wire[-1:])
    assert received + b"".join(map(bytes, body)) == b"onetwo"


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        (encode(Kind.DATA, b"x"), Interrupted),
        (encode(Kind.DATA, b"x")[:-1], Interrupted),
        (b"", Interrupted),
        (encode(Kind.CANCEL), Interrupted),
        (encode(Kind.STDIN, b"x"), errors.ValidationFailedError),
        (bytes([Kind.DATA]) + (MAX_FRAME + 1).to_bytes(4, "big"), errors.ValidationFailedError),
        (b"\xff" * 100, errors.ValidationFailedError),
    ],
)
def test_a_body_that_does_not_end_well_is_an_error(
    pair: tuple[socket.socket, Stream], wire: bytes, error: type[Exception]
) -> None:
    peer, stream = pair
    peer.sendall(wire)
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(error):
        for _ in stream.body():
            pass


def _frames(peer: socket.socket) -> list[Frame]:
    decoder = Decoder()
    frames: list[Frame] = []
    while data := peer.recv(1 << 16):
        frames += decoder.feed(data)
    assert not decoder.pending
    return frames


@pytest.mark.parametrize("fill", [False, True])
def test_a_short_file_keeps_the_frames_in_step(tmp_path: Path, fill: bool) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    file = os.open(tmp_path / "f", os.O_RDONLY)
    peer, ours = socket.socketpair()
    with peer:
        stream = Stream(ours)
        assert stream.send_file(file, 1, 50_000, fill=fill) == 2
        stream.send(Kind.END)
        stream.close()
        data, end = _frames(peer)
    os.close(file)
    assert data.payload == b"bc".ljust(50_000, b"\0")
    assert end.kind == Kind.END


def test_a_file_that_cannot_be_read_keeps_the_frames_in_step(tmp_path: Path) -> None:
    peer, ours = socket.socketpair()
    directory = os.open(tmp_path, os.O_RDONLY)
    with peer:
        stream = Stream(ours)
        with pytest.raises(IsADirectoryError):
            stream.send_file(directory, 0, 100)
        stream.send_json(Kind.ERROR, {})
        stream.close()
        assert [frame.kind for frame in _frames(peer)] == [Kind.DATA, Kind.ERROR]
    os.close(directory)


def test_a_cancelled_or_closed_connection_interrupts() -> None:
    for last_words in (encode(Kind.CANCEL), encode(Kind.END) + encode(Kind.CANCEL), b""):
        peer, ours = socket.socketpair()
        with peer, ours:
            stream = Stream(ours)
            stream.check_now()
            peer.sendall(last_words)
            if not last_words:
                peer.close()
            with pytest.raises(Interrupted):
                stream.check_now()


def test_sending_to_nobody_interrupts(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    file = os.open(tmp_path / "f", os.O_RDONLY)
    peer, ours = socket.socketpair()
    with ours:
        peer.close()
        stream = Stream(ours)
        with pytest.raises(Interrupted):
            stream.send(Kind.DATA, b"x")
        with pytest.raises(Interrupted):
            stream.send_json(Kind.REPLY, {})
        with pytest.raises(Interrupted):
            stream.send_file(file, 0, 3)
    os.close(file)
