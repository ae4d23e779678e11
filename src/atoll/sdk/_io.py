"""What the blocking SDK does outside of itself: clock, locks, files of the host, environment.

`atoll.sdk._aio` has the same names for the asynchronous SDK; the generated code differs from its
source by the module's name only. What is the same for both (the process environment, starting
the private engine of `local()`) lives here.
"""

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Generic, TypeAlias, TypeVar

from atoll.errors import ValidationFailedError

T = TypeVar("T")

Stream: TypeAlias = Generator[T, None, None]
Lock = threading.Lock
SharedLock = threading.Lock
Chunks: TypeAlias = Iterable[bytes]

sleep = time.sleep

CHUNK = 1 << 18
"""Bytes read from a local file at once."""


def scope() -> object:
    """Return what connections belong to: they must not be used in a forked child."""
    return os.getpid()


def lasts(scope: object) -> bool:
    """Whether connections of this scope can still be used."""
    return scope == os.getpid()


def finish(work: Callable[[], None], _seconds: float) -> None:
    """Do *work*, which has a time limit of its own, after the caller was interrupted.

    Nothing is done while the interpreter is taken apart: requests cannot be made any more then,
    and the engine sees that the connection ends.
    """
    if not sys.is_finalizing():
        work()


def guard(owner: object, source: Stream[Any], *, warn: bool = True) -> None:
    """End *source* when *owner* is collected, or the program ends, before the source has ended.

    Python does not tell an iterator that a loop over it was left. Before the interpreter is taken
    apart a request can still be made, so `weakref.finalize` and not ``__del__``.
    """
    weakref.finalize(owner, _end, source, type(owner).__name__ if warn else "")


def _end(source: Stream[Any], name: str) -> None:
    if getattr(source, "gi_frame", None) is None:  # it has ended
        return
    with suppress(ValueError):  # another thread reads it
        source.close()
    if name:
        warn_unclosed(name)


def warn_unclosed(name: str) -> None:
    """Warn as an open file does that nobody closed."""
    message = f"unclosed {name}: use a `with` block, or close it"
    warnings.warn(message, ResourceWarning, stacklevel=3)


def background(work: Callable[[], None]) -> None:
    """Do *work* beside the caller, in a thread that does not keep the program from ending."""
    threading.Thread(target=work, daemon=True).start()


def call(callback: Callable[..., object] | None, *values: object) -> None:
    """Call a callback of the user."""
    if callback is not None:
        callback(*values)


def as_bytes(chunk: bytes | str) -> bytes:
    """Return a piece of content; text becomes UTF-8.

    Raises:
        ValidationFailedError: it is neither (`bytes` would make zeros of a number), or half of a
            surrogate pair is in it.
    """
    if isinstance(chunk, bytes | bytearray | memoryview):
        return bytes(chunk)
    problem = f"bytes or text, not {type(chunk).__name__}"
    if isinstance(chunk, str):
        try:
            return chunk.encode()
        except UnicodeEncodeError as error:
            problem = f"text that UTF-8 can hold: {error}"
    raise ValidationFailedError(f"a piece of content is {problem}", context={"field": "content"})


def pieces(source: Iterable[bytes | str] | IO[Any]) -> Iterator[bytes]:
    """Yield the content of a file object or iterable; text becomes UTF-8."""
    read = getattr(source, "read", None)
    chunks = iter(lambda: read(CHUNK), b"") if read else iter(source)
    for chunk in chunks:
        if read and not chunk:  # a text file ends with "", a binary one with b""
            return
        yield as_bytes(chunk)


class Pump(Generic[T]):
    """Takes values from a stream one at a time, for several readers in threads of their own."""

    def __init__(self, source: Stream[T], take: Callable[[T], None]) -> None:
        self.done = False
        self._source = source
        self._take = take
        self._lock = threading.Lock()

    def advance(self, enough: Callable[[], bool]) -> None:
        """Take one more value unless *enough* says that it is not needed (any more)."""
        with self._lock:
            if enough() or self.done:
                return
            try:
                self._take(next(self._source))
            except StopIteration:
                self.done = True
            except BaseException:
                self.done = True
                raise

    def close(self) -> None:
        """End the stream; a reader in another thread is waited for."""
        with self._lock:
            self.done = True
            self._source.close()


def environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ


def now() -> float:
    """Return the monotonic clock in seconds."""
    return time.monotonic()


def jitter() -> float:
    """Return a random number from 0 to 1."""
    return random.random()


def take_lease(path: Path, seconds: float) -> tuple[socket.socket, dict[str, Any]] | None:
    """Connect to the lease socket at *path* and return the connection and the engine's line.

    None when no engine serves there (any more). The protocol: `atoll.server.lease`.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(seconds)
    try:
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # the way round the limit of 107 bytes for the path of a socket
            connection.connect(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
        line = _read_line(lambda: connection.recv(1 << 12))
    except OSError:
        line = b""
    if not line:
        connection.close()
        return None
    connection.setblocking(False)
    return connection, json.loads(line)


def made_folders(folders: Mapping[str, str | Path]) -> dict[str, Path]:
    """Make the folders that are missing, and return all by absolute paths."""
    places = {name: Path(folder).absolute() for name, folder in folders.items()}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    return places


def offer(lease: socket.socket, folders: Mapping[str, str], seconds: float) -> None:
    """Tell the engine that gave *lease* which local buckets there are, as long as it lasts.

    Raises:
        OSError: it has ended.
    """
    lease.settimeout(seconds)
    try:
        lease.sendall(json.dumps({"localBuckets": dict(folders)}).encode() + b"\n")
        if not _read_line(lambda: lease.recv(1 << 12)):
            raise ConnectionResetError("the lease has ended")
    finally:
        lease.setblocking(False)


def is_open(lease: socket.socket) -> bool:
    """Whether the engine that gave a lease still lives (1 µs: asked before each request)."""
    try:
        return lease.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def start_engine(arguments: list[str], log: Path) -> dict[str, Any]:
    """Start an engine of its own session and return its ready line, ``{}`` if it gave none.

    Args:
        arguments: of ``atoll serve``; ``--ready-fd`` is added.
        log: file that its output is appended to.
    """
    reader, writer = os.pipe()
    try:
        command = [sys.executable, "-m", "atoll.cli.main", "serve", *arguments]
        with log.open("ab") as output:
            child = subprocess.Popen(
                [*command, "--ready-fd", str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writer,),
                start_new_session=True,
            )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    # Reaps the engine, whenever it ends; it may outlive this client if others use it.
    threading.Thread(target=child.wait, daemon=True).start()
    try:
        line = _read_line(lambda: os.read(reader, 1 << 12))
    finally:
        os.close(reader)
    return json.loads(line) if line else {}


def _read_line(read: Callable[[], bytes]) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (chunk := read()):
        line += chunk
    return line if line.endswith(b"\n") else b""


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call *function*; the asynchronous twin does so without blocking its loop."""
    return function(*arguments)
