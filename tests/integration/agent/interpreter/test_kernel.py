"""The host's side of a kernel, with stand-ins for the kernel at the other end."""

import os
import socket

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

    def until(self, done: object) -> None:
        for _ in range(1000):
            if self.seen or self.gone:
                return
            self.loop.later(0.01, lambda: None)
            self.loop.step()


def _forked(sock: socket.socket, data: bytes) -> int:
    pid = os.fork()
    if not pid:
        sock.sendall(data)
        os._exit(0)
    return pid


def test_pids_are_those_of_the_senders_whatever_they_say() -> None:
    host = Host()
    data = messages.encode(messages.READY, 0, {"pid": 1})
    pid = _forked(host.theirs, data)
    host.until("a message")
    assert host.kernel.pid == pid
    os.waitpid(pid, 0)


def test_garbage_ends_the_kernel_and_says_so() -> None:
    host = Host()
    host.theirs.sendall(b"garbage, no message at all")
    host.until("the end")
    status, fault = host.gone[0]
    assert status is None
    assert "kind" in fault


def test_the_status_told_by_a_keeper_is_the_outcome() -> None:
    host = Host()
    pid = _forked(host.theirs, messages.encode(messages.KEEPER, 0, {}))
    os.waitpid(pid, 0)
    host.theirs.sendall(messages.encode(messages.EXIT, 0, {"status": 256}))
    host.theirs.close()
    host.until("the end")
    assert host.gone == [(256, "")]


def test_sending_to_a_kernel_that_is_gone_is_harmless() -> None:
    host = Host()
    host.theirs.close()
    host.until("the end")
    host.kernel.send(b"x" * 100, [0])
    host.kernel.interrupt()
    host.kernel.kill()
    assert len(host.gone) == 1
