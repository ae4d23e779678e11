"""Endpoints of buckets that fail, on loopback: each takes connections and does one thing with them."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_PAGE = b"<html><body>hello</body></html>"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n" + _PAGE
OK = b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "x"\r\nConnection: close\r\n\r\nhello'


def garbage(connection: socket.socket) -> None:
    """Answer anything with success and no sense."""
    _read(connection)
    connection.sendall(OK)


def page(connection: socket.socket) -> None:
    """Answer anything with a page, which is XML, too."""
    _read(connection)
    connection.sendall(PAGE)


def noise(connection: socket.socket) -> None:
    """Answer with what is no HTTP."""
    connection.recv(100)
    connection.sendall(b"\x00\xffnoise" * 100)


def silence(connection: socket.socket) -> None:
    """Take what comes and never answer."""
    while connection.recv(1 << 16):
        pass


def trickle(connection: socket.socket) -> None:
    """Begin an answer that never ends."""
    _read(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        threading.Event().wait(0.1)


class Relay:
    """Passes bytes on to a server, until it becomes something else. `pause`: seconds before each piece."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._open: list[socket.socket] = []
        self._instead: Callable[[socket.socket], None] | None = None
        self.passed = 0
        self.pause = 0.0

    def __call__(self, connection: socket.socket) -> None:
        if self._instead:
            self._instead(connection)
            return
        with socket.create_connection(self._target) as server:
            self._open += [connection, server]
            back = threading.Thread(target=self._pass, args=(server, connection), daemon=True)
            back.start()
            self._pass(connection, server)
            back.join()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                threading.Event().wait(self.pause)
                self.passed += len(piece)
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def become(self, what: str) -> None:
        """End all connections; new ones meet silence, garbage, a page, noise, a trickle, or an end at once."""
        behaviours = {"silent": silence, "garbage": garbage, "page": page, "noise": noise,
                      "trickle": trickle}  # fmt: skip
        self._instead = behaviours.get(what, lambda connection: connection.close())
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End all connections, and take no more."""
        self.become("gone")


def _read(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data and (piece := connection.recv(1 << 16)):
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    missing = int(fields.get(b"content-length", 0)) - len(body)
    while missing > 0 and (piece := connection.recv(1 << 16)):
        missing -= len(piece)


@contextmanager
def answering(behave: Callable[[socket.socket], None], port: int = 0) -> Iterator[str]:
    """Return the URL of an endpoint that has *behave* with each connection."""
    listener = socket.create_server(("127.0.0.1", port))
    connections: list[socket.socket] = []

    def one(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            behave(connection)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=one, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()
