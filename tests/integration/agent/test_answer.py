import json
import socket
from collections.abc import Iterator

from atoll import errors
from atoll.agent import answer
from atoll.agent.loop import Loop
from atoll.wire.frames import Decoder, Frame, Kind


def read(loop: Loop, peer: socket.socket) -> list[Frame]:
    decoder = Decoder()
    found: list[Frame] = []
    peer.setblocking(False)
    while True:
        loop.later(0.01, lambda: None)
        loop.step()
        try:
            data = peer.recv(1 << 16)
        except BlockingIOError:
            continue
        if not data:
            return found
        found += decoder.feed(data)


def test_an_answer_larger_than_the_socket_takes_is_sent_as_it_is_read() -> None:
    loop = Loop()
    ours, peer = socket.socketpair()
    made = []

    def chunks() -> Iterator[bytes]:
        for n in range(50):
            made.append(n)
            yield b"\x0f" + (100_000).to_bytes(4, "big") + bytes([n]) * 100_000

    answer.Answer(loop, ours, chunks())
    assert len(made) < 50
    assert [frame.payload[0] for frame in read(loop, peer)] == list(range(50))
    peer.close()
    loop.step()
    assert ours.fileno() == -1


def test_an_error_keeps_its_code() -> None:
    loop = Loop()
    ours, peer = socket.socketpair()
    answer.fail(loop, ours, errors.ResourceBusyError("full"))
    (frame,) = read(loop, peer)
    assert (frame.kind, json.loads(frame.payload)["code"]) == (Kind.ERROR, "RESOURCE_BUSY")
    peer.close()
    loop.step()


def test_a_peer_that_is_gone_is_forgotten() -> None:
    loop, done = Loop(), []
    ours, peer = socket.socketpair()
    peer.close()
    answer.Answer(loop, ours, [b"x"], lambda: done.append(True))
    assert (done, ours.fileno()) == ([True], -1)
