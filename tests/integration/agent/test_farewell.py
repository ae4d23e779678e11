import socket

import pytest

from atoll.agent import farewell
from atoll.agent.loop import Loop


def test_what_was_sent_arrives_although_the_peer_was_writing() -> None:
    loop, done = Loop(), []
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    ours.sendall(b"answer")
    peer.sendall(b"x" * 10_000)
    farewell.hang_up(loop, ours, lambda: done.append(True))
    loop.step()
    peer.sendall(b"more")
    loop.step()
    assert (peer.recv(99), peer.recv(99), done) == (b"answer", b"", [])
    peer.close()
    loop.step()
    assert done == [True]


def test_a_peer_that_never_closes_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(farewell, "PATIENCE", 0.05)
    loop = Loop()
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    farewell.hang_up(loop, ours, loop.stop)
    loop.run()
    assert ours.fileno() == -1
    peer.close()
