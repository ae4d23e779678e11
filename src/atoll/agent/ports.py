"""``port.connect``: a connection to a server inside, whose bytes travel as frames.

For engines that cannot make a socket inside themselves. Runs in a process of its own that carries
this one connection. Each way holds what one read gave and nothing is read before that is gone:
who reads slowly slows down who writes, and nobody else.
"""

import select
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn

from atoll import errors
from atoll.wire import frames
from atoll.wire.agent import CONNECT_TIMEOUT
from atoll.wire.frames import Kind

LINGER: Final = 10
"""Seconds that a server has to take what a caller sent who is gone."""

_READ: Final = frames.CHUNK


class _GoneError(Exception):
    """The caller wants nothing more, or sends what is no part of a tunnel."""


def serve(caller: socket.socket, header: Mapping[str, Any]) -> None:
    """Connect, answer, and carry bytes until both sides have ended or one is gone."""
    try:
        with _connect(header) as server:
            caller.sendall(frames.encode_json(Kind.REPLY, {}))
            Tunnel(caller, server).run()
    except errors.SandboxError as error:
        _tell(caller, frames.encode_json(Kind.ERROR, error.to_wire()))
    except _GoneError:
        caller.close()
    else:
        _tell(caller)


def _connect(header: Mapping[str, Any]) -> socket.socket:
    address, port = str(header["address"]), int(header["port"])
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.settimeout(float(header.get("timeout") or CONNECT_TIMEOUT))
    try:
        server.connect((socket.inet_ntop(family, socket.inet_pton(family, address)), port))
    except TimeoutError as error:
        server.close()
        raise _failed(header, "timeout") from error
    except OSError as error:
        server.close()
        reason = "refused" if isinstance(error, ConnectionRefusedError) else str(error.strerror)
        raise _failed(header, reason) from error
    return server


def _failed(header: Mapping[str, Any], reason: str) -> errors.SandboxError:
    return errors.ServiceNotRespondingError(
        f"nothing takes connections on port {header['port']}",
        context={"port": header["port"], "address": header["address"], "reason": reason},
    )


def _tell(caller: socket.socket, last: bytes = b"") -> None:
    """Send what is the last, and read until the caller has closed; see `farewell`."""
    with suppress(OSError):
        caller.settimeout(LINGER)
        caller.sendall(last)
        caller.shutdown(socket.SHUT_WR)
        while caller.recv(_READ):
            pass
    caller.close()


class Tunnel:
    """Both ways between *caller* (frames) and *server* (bytes)."""

    def __init__(self, caller: socket.socket, server: socket.socket) -> None:
        self._caller, self._server = caller, server
        self._decoder = frames.Decoder()
        self._inward = memoryview(b"")  # for the server
        self._outward = memoryview(b"")  # frames for the caller
        self._caller_ended = self._server_ended = False
        self._told_server = False
        self._failed: OSError | None = None  # the server takes nothing more

    def run(self) -> None:
        """Carry bytes until both have ended.

        Raises:
            ServiceNotRespondingError: the server broke the connection.
            _GoneError: the caller is gone.
        """
        self._caller.setblocking(False)
        self._server.setblocking(False)
        while not self._over():
            ready = self._wait()
            if ready.get(self._caller, 0) & ~select.POLLOUT and not self._inward:
                self._from_caller()
            elif ready.get(self._caller, 0) & ~(select.POLLOUT | select.POLLIN):
                self._finish()
            if ready.get(self._server, 0) & ~select.POLLOUT and not self._outward:
                self._from_server()
            self._to_server()
            self._to_caller()
        if self._failed:
            raise errors.ServiceNotRespondingError(f"the server hung up ({self._failed})")

    def _over(self) -> bool:
        nothing_left = not (self._inward or self._outward)
        return nothing_left and self._server_ended and bool(self._caller_ended or self._failed)

    def _wait(self) -> dict[socket.socket, int]:
        """Wait for what can be done now; a descriptor of which nothing is wanted is left out.

        The caller never is: that it went has to be seen while the server reads nothing.
        """
        poll = select.poll()
        take, give = select.POLLIN, select.POLLOUT
        of_caller = (0 if self._inward else take) | (give if self._outward else 0)
        poll.register(self._caller, of_caller | select.POLLRDHUP)
        reads = not (self._outward or self._server_ended)
        of_server = (take if reads else 0) | (give if self._inward else 0)
        if of_server:
            poll.register(self._server, of_server)
        sockets = {self._caller.fileno(): self._caller, self._server.fileno(): self._server}
        return {sockets[fd]: events for fd, events in poll.poll()}

    def _from_caller(self) -> None:
        try:
            data = self._caller.recv(_READ)
        except BlockingIOError:
            return
        except OSError as error:
            raise _GoneError from error
        if not data:
            raise _GoneError
        self._inward = memoryview(self._unpacked(data))

    def _unpacked(self, data: bytes) -> bytes:
        parts = []
        try:
            for frame in self._decoder.feed(data):
                if frame.kind == Kind.CANCEL:
                    raise _GoneError
                if frame.kind == Kind.END:
                    self._caller_ended = True
                elif frame.kind != Kind.DATA or self._caller_ended:
                    raise _GoneError
                parts.append(frame.payload if frame.kind == Kind.DATA else b"")
        except frames.FrameError as error:
            raise _GoneError from error
        return b"".join(parts)

    def _from_server(self) -> None:
        try:
            data = self._server.recv(_READ)
        except BlockingIOError:
            return
        except OSError as error:
            self._failed, data = error, b""
        self._server_ended = not data
        if data:
            self._outward = memoryview(frames.encode(Kind.DATA, data))
        elif not self._failed:
            self._outward = memoryview(frames.encode(Kind.END))

    def _to_server(self) -> None:
        try:
            if self._inward and not self._failed:
                self._inward = self._inward[self._server.send(self._inward) :]
            if self._caller_ended and not (self._inward or self._told_server or self._failed):
                self._told_server = True
                self._server.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError as error:  # what it answered before can still be read
            self._failed = error
        if self._failed:
            self._inward = memoryview(b"")

    def _to_caller(self) -> None:
        try:
            if self._outward:
                self._outward = self._outward[self._caller.send(self._outward) :]
        except BlockingIOError:
            return
        except OSError as error:
            raise _GoneError from error

    def _finish(self) -> NoReturn:
        """Give the server what a caller sent who is gone; no longer than `LINGER`."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LINGER)
        self._server.setblocking(True)
        self._caller.setblocking(True)
        with suppress(OSError):
            while True:
                self._server.sendall(self._inward)
                self._from_caller()
        raise _GoneError
