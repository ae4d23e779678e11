"""A small client of the agent's protocol, for tests that need no engine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from atoll import errors
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind
from integration.agent.bundle import RUN, readable

TIMEOUT = 20.0


class Result(NamedTuple):
    """Everything an exec answered."""

    stdout: bytes
    stderr: bytes
    record: dict[str, Any]
    frames: list[Frame]

    @property
    def code(self) -> int:
        return int(self.record["exit_code"])


class Connection:
    """One connection to the agent."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(TIMEOUT)
        self._decoder = frames.Decoder()
        self._ready: list[Frame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def header(self, fds: tuple[int, ...] = (), **fields: Any) -> None:
        frame = frames.encode_json(Kind.HEADER, fields)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
        sent = self.sock.sendmsg([frame], rights)
        if rest := frame[sent:]:
            self.sock.sendall(rest)

    def send(self, kind: int, payload: bytes = b"") -> None:
        self.sock.sendall(frames.encode(kind, payload))

    def frame(self) -> Frame | None:
        """Return the next frame, or None at the end."""
        while not self._ready:
            data = self.sock.recv(1 << 16)
            if not data:
                return None
            self._ready += self._decoder.feed(data)
        return self._ready.pop(0)

    def __iter__(self) -> Iterator[Frame]:
        while frame := self.frame():
            yield frame

    def until(self, kind: int) -> Frame:
        """Return the next frame of *kind*; the others before it are dropped."""
        for frame in self:
            if frame.kind == kind:
                return frame
            if frame.kind == Kind.ERROR:
                raise errors.from_wire(json.loads(frame.payload))
        raise EOFError("the agent closed the connection")

    def result(self) -> Result:
        """Read to the end and return what the command did."""
        with self:
            return collect(list(self))


class Client:
    """Talks to the agent that listens at *path*; *pid* is the agent's process."""

    def __init__(self, path: str, pid: int, directory: Path) -> None:
        self.path, self.pid, self.directory = path, pid, directory

    def connect(self) -> Connection:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(self.path)
        return Connection(sock)

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """Run a unary operation."""
        with self.connect() as connection:
            connection.header(op=op, **fields)
            reply: dict[str, Any] = json.loads(connection.until(Kind.REPLY).payload)
            return reply

    def start(self, command: str | list[str], **fields: Any) -> Connection:
        """Send an exec and return its connection."""
        connection = self.connect()
        fds = fields.pop("fds", ())
        fields.setdefault("id", uuid.uuid4().hex)
        connection.header(op="exec", command=command, fds=fds, **fields)
        return connection

    def exec(
        self, command: str | list[str], *, stdin: bytes | None = None, **fields: Any
    ) -> Result:
        """Run a command to its end."""
        with self.start(command, stdin=stdin is not None, **fields) as connection:
            if stdin is not None:
                for at in range(0, len(stdin), frames.CHUNK):
                    connection.send(Kind.STDIN, stdin[at : at + frames.CHUNK])
                connection.send(Kind.STDIN_CLOSE)
            return connection.result()


def collect(found: list[Frame]) -> Result:
    """Sort an operation's frames; raise its error."""
    streams: dict[int, list[bytes]] = {Kind.STDOUT: [], Kind.STDERR: []}
    for frame in found:
        if frame.kind in streams:
            streams[frame.kind].append(frames.decode_output(frame.payload).data)
        elif frame.kind == Kind.ERROR:
            raise errors.from_wire(json.loads(frame.payload))
    if not found or found[-1].kind != Kind.EXITED:
        raise EOFError(f"no EXITED at the end of {[frame.kind for frame in found]}")
    record = json.loads(found[-1].payload)
    return Result(b"".join(streams[Kind.STDOUT]), b"".join(streams[Kind.STDERR]), record, found)


def launch(directory: Path, **config: Any) -> subprocess.Popen[bytes]:
    """Start an agent on the bare host that listens in *directory*."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(directory / "agent.sock"))
    listener.listen(128)
    workspace = directory / "workspace"
    workspace.mkdir(exist_ok=True)
    body = {
        "generation": 1,
        "workdir": str(workspace),
        "user": f"{os.getuid()}:{os.getgid()}",
        "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        "confine": False,
        **config,
    }
    (directory / "config.json").write_text(json.dumps(body))
    with open(directory / "config.json", "rb") as file:
        sources = [listener.detach(), os.dup(file.fileno())]
    argv = [
        *os.environ.get("TRACE", "").split(),
        sys.executable,
        "-I",
        "-X",
        "utf8",
        "-c",
        RUN,
        str(readable()),
    ]

    def inherit() -> None:
        high = [os.dup2(fd, 100 + n) for n, fd in enumerate(sources)]
        for n, fd in enumerate(high):
            os.dup2(fd, 3 + n)

    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            env={},
            close_fds=True,
            pass_fds=(3, 4),
            preexec_fn=inherit,
            start_new_session=True,
        )
    finally:
        for fd in sources:
            os.close(fd)


def eventually(check: Callable[[], object], timeout: float = 10.0) -> None:
    """Wait until *check* is true; fail with its last answer."""
    end = time.monotonic() + timeout
    while not (answer := check()):
        assert time.monotonic() < end, f"still {answer!r} after {timeout} s"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process with this id runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in b"ZX"
    except OSError:
        return False


def end(process: subprocess.Popen[bytes]) -> None:
    """End the agent and everything it started, as the end of a container does.

    All of it is stopped first: what would run on between the look and the kill could fork away.
    """
    members: list[int] = []
    while process.poll() is None and (found := tree(process.pid)) != members:
        members = found
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
    for pid in members:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def tree(root: int) -> list[int]:
    """Return *root* and the processes below it."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                parents[int(name)] = parent(int(name))
    found = [root]
    for pid in found:
        found.extend(sorted(child for child, above in parents.items() if above == pid))
    return found


def output(found: list[Frame]) -> bytes:
    return b"".join(
        frames.decode_output(frame.payload).data
        for frame in found
        if frame.kind in {Kind.STDOUT, Kind.STDERR}
    )


def attach(agent: Client, id: str, from_offset: int = 0) -> Connection:
    connection = agent.connect()
    connection.header(op="attach", id=id, from_offset=from_offset)
    return connection


def control(agent: Client, id: str, *messages: tuple[int, bytes]) -> dict[str, object]:
    with agent.connect() as connection:
        connection.header(op="control", id=id)
        for kind, payload in messages:
            connection.send(kind, payload)
        connection.send(Kind.END)
        reply: dict[str, object] = json.loads(connection.until(Kind.REPLY).payload)
        return reply


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
