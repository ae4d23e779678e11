import socket
from collections.abc import Iterator

import pytest

from atoll.agent.loop import Loop
from atoll.agent.viewer import BACKLOG, Viewer
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind


class Side:
    """A viewer, the other end of its connection, and what the viewer told."""

    def __init__(self) -> None:
        self.loop = Loop()
        ours, self.peer = socket.socketpair()
        self.peer.settimeout(5)
        self.got: list[Frame] = []
        self.told: list[str] = []
        self.viewer = Viewer(
            self.loop,
            ours,
            on_frame=lambda _, frame: self.got.append(frame),
            on_gone=lambda _: self.told.append("gone"),
            on_room=lambda _: self.told.append("room"),
        )

    def turn(self, rounds: int = 3) -> None:
        for _ in range(rounds):
            self.loop.later(0.01, lambda: None)
            self.loop.step()


@pytest.fixture
def side() -> Iterator[Side]:
    made = Side()
    yield made
    made.peer.close()
    made.viewer.drop()


def test_frames_go_both_ways(side: Side) -> None:
    side.viewer.send(frames.encode(Kind.STDOUT, b"out"))
    side.turn(1)
    assert side.peer.recv(99) == frames.encode(Kind.STDOUT, b"out")
    side.peer.sendall(frames.encode(Kind.STDIN, b"in") + frames.encode(Kind.STDIN_CLOSE))
    side.turn()
    assert side.got == [Frame(Kind.STDIN, b"in"), Frame(Kind.STDIN_CLOSE, b"")]


def test_a_peer_that_does_not_read_fills_it_and_reading_makes_room(side: Side) -> None:
    frame = frames.encode(Kind.STDOUT, b"x" * 65_536)
    count = 0
    while not side.viewer.full:
        side.viewer.send(frame)
        count += 1
    received = 0
    side.turn(1)
    while received < count * len(frame):
        received += len(side.peer.recv(1 << 20))
        side.turn(1)
    assert side.told == ["room"]
    assert side.viewer.backlog == 0
    assert count * len(frame) < BACKLOG + (1 << 20)


def test_single_bytes_fill_it_by_what_they_cost(side: Side) -> None:
    count = 0
    while not side.viewer.full:
        side.viewer.send(frames.encode(Kind.STDOUT, b"x"))
        count += 1
    assert count < 30_000


def test_the_end_of_the_peer_is_told_once(side: Side) -> None:
    side.peer.close()
    side.turn()
    assert (side.told, side.viewer.closed) == (["gone"], True)


def test_the_end_of_the_peer_is_seen_while_reading_is_paused(side: Side) -> None:
    side.viewer.pause(True)
    side.peer.sendall(frames.encode(Kind.CANCEL))
    side.turn()
    assert side.got == []
    side.peer.close()
    side.turn()
    assert (side.got, side.told) == ([Frame(Kind.CANCEL, b"")], ["gone"])


def test_nonsense_ends_the_connection(side: Side) -> None:
    side.peer.sendall(b"\x05\xff\xff\xff\xff")
    side.turn()
    assert side.told == ["gone"]


def test_finishing_sends_everything_first_then_waits_for_the_peer(side: Side) -> None:
    frame = frames.encode(Kind.STDOUT, b"x" * 500_000)
    side.viewer.send(frame)
    side.viewer.send(frame)
    side.viewer.finish()
    side.peer.sendall(frames.encode(Kind.STDIN, b"still writing"))
    received = b""
    side.turn(1)
    while len(received) < 2 * len(frame):
        received += side.peer.recv(1 << 20)
        side.turn(1)
    assert side.peer.recv(1) == b""
    side.peer.sendall(frames.encode(Kind.STDIN, b"and again"))
    side.turn()
    assert not side.viewer.closed
    side.peer.close()
    side.turn()
    assert side.viewer.closed
    assert "gone" not in side.told
    assert side.got == []
