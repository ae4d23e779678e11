"""What a waiting supervisor and its stub do once for nothing, so that it is fast when it counts.

After a fork, the first write to each page is a fault and a copy (about 1 µs, and reference counts
are writes): a first run of the code of a start takes 2 ms longer than the second. The waiting
processes have the time; the pages would be copied by the command anyway.
"""

import os
import socket
from contextlib import suppress

from atoll import errors
from atoll.agent import channel, checks, launch, users
from atoll.agent.devices import Devices
from atoll.agent.journal import Journal
from atoll.agent.launch import Context
from atoll.agent.loop import Loop
from atoll.agent.viewer import Viewer
from atoll.wire.frames import Kind

_HEADER = {"op": "exec", "id": "0", "command": ["true"], "env": {"A": "1"}, "timeout": 1.0}
_CONTEXT = {
    "env": {"A": "1"},
    "cwd": "/",
    "here": "/",
    "user": "0:0",
    "session": False,
    "pending": {},
}


def rehearse_start(devices: Devices) -> None:
    """Go through what a supervisor does between a request and its stub."""
    with suppress(errors.SandboxError, OSError):
        ours, theirs = channel.pair()
        channel.send(ours, {"header": _HEADER, "context": _CONTEXT}, [0])
        message = channel.receive(theirs)
        if message:
            os.close(message.fds[0])
        checks.check(_HEADER)
        user = users.read("0:0")
        for header in (_HEADER, {**_HEADER, "command": "true"}):
            plan = launch.plan(header, Context.of(_CONTEXT, []), user, devices.sink)
            channel.send(theirs, plan.message(user, tty=False))
            plan.close()
        ours.close()
        theirs.close()
        _rehearse_answer()


def _rehearse_answer() -> None:
    loop, journal = Loop(), Journal()
    ours, theirs = socket.socketpair()
    viewer = Viewer(loop, ours, on_frame=lambda *_: None)
    viewer.send(journal.started(1))
    viewer.send(journal.output(Kind.STDOUT, b"x"))
    viewer.send(journal.exited({"exit_code": 0, "signal": None, "timed_out": False}))
    viewer.drop()
    theirs.close()
    loop.close()
