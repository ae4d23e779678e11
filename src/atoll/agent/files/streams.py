"""The connection of one file operation: frames over a blocking socket.

Bodies are received into one buffer and handed out as views of it; files are sent with
sendfile(2), in frames that are announced before their bytes are read. A file that ends early
therefore has the rest of its frame filled with zeros, and the caller is told, so that frames
never lose their step and nobody takes the zeros for content.

Only the child of the operation uses the connection, so it may block: back-pressure is the
kernel's.
"""

import errno
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from atoll import errors
from atoll.wire import frames
from atoll.wire.agent import HEARTBEAT_INTERVAL

CHUNK: Final = 1 << 20
"""Bytes of one DATA frame and of the receive buffer. Measured on a socket pair: frames of 1 MiB
move 12 GB/s with sendfile, of 64 KiB half of that; read and send 7 GB/s."""

LINGER: Final = 5.0
"""Seconds to wait for the next bytes of a body that is dropped after an error."""

STUCK: Final = 300
"""Seconds in one system call after which the process is ended. No disk takes that long; a mount
whose server does not answer takes for ever, and nobody waits for it any more."""

_CHECK_EVERY: Final = 256
_BEAT_EVERY: Final = 16
"""Checks between looks at the clock: on a slow mount each may stand for seconds."""

_HEADER: Final = struct.Struct(">BI")
_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT, errno.ENOTCONN})
_NO_SENDFILE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class Interrupted(Exception):  # noqa: N818 - named after what happened, as CancelledError is
    """The caller cancelled, went away, or the sandbox stops: undo what is unfinished."""


class Terminated(Interrupted):
    """The sandbox stops, and the caller still listens."""


class Stream:
    """Sends and receives the frames of one operation.

    Args:
        connection: used by nobody else.
        has_body: a body follows, whether the operation comes to reading it or not.
        procs: cgroup.procs files of the commands' cgroup, for a program of the image.
    """

    def __init__(
        self, connection: socket.socket, *, has_body: bool = False, procs: Sequence[int] = ()
    ) -> None:
        self.procs = procs
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK)  # as far as is allowed
        self._socket = connection
        self._buffer = bytearray()  # made when there is something to receive
        self._view = memoryview(self._buffer)
        self._start = self._end = self._left = 0
        self._in_body = has_body
        self._checks = 0
        self._beat = time.monotonic()
        signal.alarm(STUCK)

    def send(self, kind: int, payload: bytes | memoryview = b"") -> None:
        """Send one frame."""
        head = _HEADER.pack(kind, len(payload))
        with self._peers_turn():
            sent = self._socket.sendmsg([head, payload]) - len(head)
            if sent < 0:
                self._socket.sendall(head[sent:])
                sent = 0
            if sent < len(payload):
                self._socket.sendall(memoryview(payload)[sent:])

    def send_json(self, kind: int, body: Mapping[str, Any]) -> None:
        """Send one frame with a JSON object."""
        self._raw(frames.encode_json(kind, body))

    def send_file(self, file: int, offset: int, count: int, *, fill: bool = False) -> int:
        """Send *count* bytes of *file* as DATA frames.

        Returns:
            How many of them the file had. When fewer than *count*, the frame that was begun is
            filled with zeros, and with *fill* so are all that were to follow.

        Raises:
            OSError: the file could not be read; the connection can still be used.
        """
        done = 0
        while done < count:
            size = min(CHUNK, count - done)
            sent = self._send_chunk(file, offset + done, size)
            if sent < size:
                for start in range(done + size, count if fill else 0, CHUNK):
                    self.send(frames.Kind.DATA, bytes(min(CHUNK, count - start)))
                return done + sent
            done += size
            self.check()
        return done

    def _send_chunk(self, file: int, offset: int, size: int) -> int:
        self._raw(_HEADER.pack(frames.Kind.DATA, size), socket.MSG_MORE)
        done = 0
        try:
            while done < size and (sent := self._splice(file, offset + done, size - done)):
                done += sent
        finally:
            if done < size:
                self._raw(bytes(size - done))
        return done

    def _splice(self, file: int, offset: int, size: int) -> int:
        signal.alarm(0)  # which of the two it waits for cannot be told
        try:
            return os.sendfile(self._socket.fileno(), file, offset, size)
        except OSError as error:
            if error.errno in _GONE:
                raise Interrupted(str(error)) from error
            if error.errno not in _NO_SENDFILE:
                raise
        finally:
            self._beat = time.monotonic()
            signal.alarm(STUCK)
        data = os.pread(file, size, offset)
        self._raw(data)
        return len(data)

    def _raw(self, data: bytes, flags: int = 0) -> None:
        with self._peers_turn():
            self._socket.sendall(data, flags)

    @contextmanager
    def _peers_turn(self) -> Iterator[None]:
        """Wait for the caller, who may take any time."""
        signal.alarm(0)
        try:
            yield
        except OSError as error:
            raise Interrupted(str(error)) from error
        finally:
            self._beat = time.monotonic()
            signal.alarm(STUCK)

    def body(self) -> Iterator[memoryview]:
        """Yield the bytes of the DATA frames up to END; a view is valid until the next one.

        Raises:
            Interrupted: the caller cancelled, or the connection ended before END.
            ValidationFailedError: another frame came instead.
        """
        while (kind := self._next_header()[0]) == frames.Kind.DATA:
            yield from self._payload()
        if kind == frames.Kind.CANCEL:
            raise Interrupted("cancelled by the caller")
        if kind != frames.Kind.END:
            raise errors.ValidationFailedError(f"frame of type {kind} in a body")
        for _ in self._payload():
            pass
        self._in_body = False

    def _next_header(self) -> tuple[int, int]:
        while self._end - self._start < _HEADER.size:
            self._receive()
        kind, self._left = _HEADER.unpack_from(self._buffer, self._start)
        self._start += _HEADER.size
        if self._left > frames.MAX_FRAME:
            raise errors.ValidationFailedError(f"frame of {self._left} bytes")
        return kind, self._left

    def _payload(self) -> Iterator[memoryview]:
        while self._left:
            if self._start == self._end:
                self._receive()
            size = min(self._left, self._end - self._start)
            self._start += size
            self._left -= size
            yield self._view[self._start - size : self._start]

    def _receive(self) -> None:
        rest = bytes(self._view[self._start : self._end])  # part of a header
        if len(self._buffer) < CHUNK:
            self._buffer = bytearray(CHUNK)
            self._view = memoryview(self._buffer)
        self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
        with self._peers_turn():
            size = self._socket.recv_into(self._view[self._end :])
        if not size:
            raise Interrupted("the connection ended inside the body")
        self._end += size

    def check(self) -> None:
        """Look now and then whether the caller still wants the answer; costs next to nothing.

        It is also the sign of life that a long operation gives, to be called between frames only.

        Raises:
            Interrupted: it does not.
        """
        self._checks += 1
        if self._checks % _CHECK_EVERY == 0:
            self.check_now()
        elif self._checks % _BEAT_EVERY == 0:
            self._show_life()

    def check_now(self) -> None:
        """Do what `check` does, on this very call."""
        if not self._in_body and self.wanted_by(0.0) is False:
            raise Interrupted("the caller is gone or cancelled")
        self._show_life()

    def _show_life(self) -> None:
        """Move the end of patience on; tell the caller every `HEARTBEAT_INTERVAL`."""
        silent = time.monotonic() - self._beat
        if silent >= 1:
            signal.alarm(STUCK)
        if silent >= HEARTBEAT_INTERVAL and not self._in_body:
            self.send(frames.Kind.HEARTBEAT)

    def wanted_by(self, timeout: float, *others: int) -> bool | None:
        """Wait up to *timeout* seconds for the caller or one of the descriptors *others*.

        Returns:
            False: the caller cancelled or is gone; True: one of *others* is readable;
            None: nothing happened.
        """
        poll = select.poll()
        for fd in (self._socket.fileno(), *others):
            poll.register(fd, select.POLLIN)
        if timeout:
            signal.alarm(0)
        ready = {fd for fd, _ in poll.poll(timeout * 1000)}
        if timeout:
            signal.alarm(STUCK)
        if self._socket.fileno() in ready and not self._still_wanted():
            return False
        return True if ready & set(others) else None

    def _still_wanted(self) -> bool:
        """Take all frames that are here off the connection: only CANCEL and the end matter."""
        try:
            while True:
                if self._next_header()[0] == frames.Kind.CANCEL:
                    return False
                for _ in self._payload():
                    pass
                if self._start == self._end:
                    return True
        except (Interrupted, errors.ValidationFailedError):
            return False

    def close(self) -> None:
        """End the connection so that the caller can read all that was sent.

        What was sent and not read is read and dropped, a body up to its end: closing with unread
        bytes would reset the connection, and a reset may overtake the answer.
        """
        signal.alarm(0)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(LINGER if self._in_body else 0)
            while self._socket.recv(CHUNK):
                pass
        self._socket.close()
