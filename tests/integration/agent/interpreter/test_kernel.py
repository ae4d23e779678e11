"""The host's side of a kernel, with stand-ins for the kernel at the other end."""

import os
import socket
from collections.abc import Iterator

import pytest

from atoll.agent.interpreter import messages
from atoll.agent.interpreter.kernel import Kernel, pair
from atoll.agent.interpreter.messages import Message
from atoll.agent.loop import Loop


class Host:
    """What a kernel reports to."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.seen: list[Message] = []
        self.gone: list[tuple[int | None, str]] = []
        ours, self.theirs = pair()
        self.kernel = Kernel(
            self.loop,
            ours,
            on_message=self.seen.append,
            on_gone=lambda status, fault: self.gone.append((status, fault)),
        )

    def close(self) -> None:
        self.theirs.close()
        self.kernel._end()
        self.loop.close()

    def until_told(self) -> None:
        for _ in range(1000):
            if self.seen or self.gone:
                return
            self.loop.later(0.01, lambda: None)
            self.loop.step()


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    yield made
    made.close()


def _forked(sock: socket.socket, data: bytes) -> int:
    pid = os.fork()
    if not pid:
        sock.sendall(data)
        os._exit(0)
    return pid


def test_pids_are_those_of_the_senders_whatever_they_say(host: Host) -> None:
    data = messages.encode(messages.READY, 0, {"pid": 1})
    pid = _forked(host.theirs, data)
    host.until_told()
    assert host.kernel.pid == pid
    os.waitpid(pid, 0)


def test_garbage_ends_the_kernel_and_says_so(host: Host) -> None:
    host.theirs.sendall(b"garbage, no message at all")
    host.until_told()
    status, fault = host.gone[0]
    assert status is None
    assert "kind" in fault


def test_the_status_told_by_a_keeper_is_the_outcome(host: Host) -> None:
    pid = _forked(host.theirs, messages.encode(messages.KEEPER, 0, {}))
    os.waitpid(pid, 0)
    host.theirs.sendall(messages.encode(messages.EXIT, 0, {"status": 256}))
    host.theirs.close()
    host.until_told()
    assert host.gone == [(256, "")]


def test_sending_to_a_kernel_that_is_gone_is_harmless(host: Host) -> None:
    host.theirs.close()
    host.until_told()
    host.kernel.send(b"x" * 100, [0])
    host.kernel.interrupt()
    host.kernel.kill()
    assert len(host.gone) == 1
