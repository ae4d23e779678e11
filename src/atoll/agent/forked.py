"""The supervisor's side of its stub: the fork, the pipes, and how the start went."""

import os
from collections.abc import Mapping
from typing import Any

from atoll.agent import channel
from atoll.agent.config import Config
from atoll.agent.descriptors import keep_only
from atoll.agent.stub import become_command


class Stub:
    """A forked process that waits for a plan, with its three pipes."""

    def __init__(self, config: Config) -> None:
        stdin, self.stdin = os.pipe2(os.O_CLOEXEC)
        self.stdout, stdout = os.pipe2(os.O_CLOEXEC)
        self.stderr, stderr = os.pipe2(os.O_CLOEXEC)
        self.sock, peer = channel.pair()
        self.theirs = [stdin, stdout, stderr]
        self._empty = config.devices.empty
        self.ready = False
        self.report: dict[str, Any] | None = None
        self.pid = os.fork()
        if not self.pid:
            keep_only({0, 1, 2, peer.fileno(), *config.procs})
            become_command(peer, config)
        peer.close()

    def run(self, plan: dict[str, Any], files: Mapping[int, int]) -> None:
        """Tell the stub what to become; *files* are further descriptors by their number there."""
        plan = {**plan, "targets": [0, 1, 2, *files]}
        try:
            channel.send(self.sock, plan, [*self.theirs, *files.values()])
        finally:
            for fd in self.theirs:
                os.close(fd)

    def use_null(self) -> None:
        """Give the command an empty standard input."""
        os.close(self.stdin)
        os.dup2(self._empty, self.theirs[0], inheritable=False)

    def use_terminal(self, master: int, slave: int) -> None:
        """Give the command *slave* instead of the three pipes."""
        for fd in (self.stdin, self.stdout, self.stderr):
            os.close(fd)
        for fd in self.theirs:
            os.dup2(slave, fd, inheritable=False)
        os.close(slave)
        self.stdin, self.stdout, self.stderr = os.dup(master), master, -1

    def progress(self) -> bool:
        """Read what the stub reports; return True once it has executed, failed or died."""
        self.sock.setblocking(False)
        try:
            while message := channel.receive(self.sock):
                self.ready = True
                self.report = message.body if "failed" in message.body else None
        except BlockingIOError:
            return False
        except ConnectionResetError:  # killed before it read its plan
            self.ready = False
        return True
