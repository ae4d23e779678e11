"""Runs file operations as the router does: in a forked child that owns one end of a socket."""

import fcntl
import json
import mmap
import os
import resource
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from atoll import errors
from atoll.agent.files import dispatch
from atoll.wire.frames import Decoder, Frame, Kind, encode
from integration.agent.bundle import import_from, readable

NOBODY = 65_534

PRELOADED = (fcntl, mmap, resource, tarfile)
"""What the agent imports when it needs it: an interpreter below /root is closed to other users."""


class Answer(NamedTuple):
    """All that an operation answered."""

    reply: Any
    data: bytes
    end: Any


class Call:
    """One operation in progress."""

    def __init__(self, op: str, *, uid: int | None = None, **fields: Any) -> None:
        self.socket, theirs = socket.socketpair()
        place = readable()
        self.pid = os.fork()
        if not self.pid:
            try:
                self.socket.close()
                import_from(place)
                if uid is not None:
                    os.setgroups([])
                    os.setresgid(uid, uid, uid)
                    os.setresuid(uid, uid, uid)
                os.umask(0o022)
                dispatch.serve(theirs, {"op": f"fs.{op}", "cwd": "/", **fields})
                os._exit(0)
            finally:
                os._exit(1)
        theirs.close()
        self.socket.settimeout(20)

    def send(self, kind: int, payload: bytes = b"") -> None:
        self.socket.sendall(encode(kind, payload))

    def send_body(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            self.send(Kind.DATA, chunk)
        self.send(Kind.END)

    def frames(self) -> Iterator[Frame]:
        decoder = Decoder()
        while data := self.socket.recv(1 << 20):
            yield from decoder.feed(data)
        assert not decoder.pending

    def events(self) -> Iterator[Any]:
        for frame in self.frames():
            if frame.kind == Kind.EVENT:
                yield json.loads(frame.payload)

    def answer(self) -> Answer:
        reply = end = None
        data = bytearray()
        for kind, payload in self.frames():
            if kind == Kind.ERROR:
                self.finish()
                raise errors.from_wire(json.loads(payload))
            if kind == Kind.REPLY:
                reply = json.loads(payload)
            elif kind == Kind.DATA:
                data += payload
            elif kind == Kind.END:
                end = json.loads(payload or b"{}")
        self.finish()
        return Answer(reply, bytes(data), end)

    def finish(self) -> None:
        self.socket.close()
        _, status = os.waitpid(self.pid, 0)
        assert status == 0


def call(
    op: str, *, body: Iterable[bytes] | None = None, uid: int | None = None, **fields: Any
) -> Answer:
    """Run *op* to its end; raise the error it answered."""
    running = Call(op, uid=uid, **fields)
    if body is not None:
        running.send_body(body)
    return running.answer()


def write(path: object, *chunks: bytes, **fields: Any) -> Any:
    return call("write_file", body=chunks, path=str(path), **fields).reply


def read(path: object, **fields: Any) -> bytes:
    return call("read_file", path=str(path), **fields).data


@contextmanager
def shared_directory() -> Iterator[Path]:
    """A directory every user may write to; pytest's own are closed to others."""
    path = Path(tempfile.mkdtemp(prefix="agent-dispatch-"))
    path.chmod(0o777)
    try:
        yield path
    finally:
        shutil.rmtree(path)
