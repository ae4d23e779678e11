"""A name server that tells what it was asked. One message each way, UDP and TCP; no dependency."""

import ipaddress
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from atoll.network import netns

A, NS, CNAME, TXT, AAAA, HTTPS = 1, 2, 5, 16, 28, 65
TTL = 5


class NameServer:
    """Answers from a table.

    Args:
        names: addresses by name; ``*.example`` for all names below. A value that is no address is
            an alias (CNAME).

    Attributes:
        questions: (name, type) of all that arrived.
        ttl: seconds, of all answers.
    """

    def __init__(self, names: dict[str, list[str]]) -> None:
        self.names = dict(names)
        self.questions: list[tuple[str, int]] = []
        self.ttl = TTL

    def asked(self, name: str) -> bool:
        """Tell whether a name, or one below it, was asked for."""
        return any(q == name or q.endswith(f".{name}") for q, _ in self.questions)

    def answer(self, message: bytes) -> bytes:
        """Return the answer to one message."""
        number, (name, kind, end) = message[:2], _question(message)
        self.questions.append((name, kind))
        found = self._find(name)
        records = [record for value in found or () for record in self._records(value, kind)]
        if kind == TXT and found is not None:
            records = [_record(TXT, self.ttl, b"\4text")]
        code = 3 if found is None else 0
        head = struct.pack("!HHHHH", 0x8180 | code, 1, len(records), 0, 0)
        return number + head + message[12:end] + b"".join(records)

    def _find(self, name: str) -> list[str] | None:
        labels = name.split(".")
        wild = ("*." + ".".join(labels[at:]) for at in range(1, len(labels)))
        return next((self.names[n] for n in (name, *wild) if n in self.names), None)

    def _records(self, value: str, kind: int) -> list[bytes]:
        try:
            address = ipaddress.ip_address(value)
        except ValueError:
            alias = _record(CNAME, self.ttl, _labels(value))
            inner = [r for v in self._find(value) or () for r in self._records(v, kind)]
            return [alias, *(_labels(value) + r[2:] for r in inner)]
        if kind != (A if address.version == 4 else AAAA):
            return []
        return [_record(kind, self.ttl, address.packed)]

    @contextmanager
    def serving(self, namespace: Path, addresses: tuple[str, ...]) -> Iterator[None]:
        """Serve at port 53 of these addresses, and over TCP at all."""
        with ExitStack() as stack:
            for address in addresses:
                bound = netns.call_in(namespace, lambda address=address: _udp(address))  # type: ignore[misc]
                stack.enter_context(_looping(bound, self._serve_datagram))
            listener = netns.call_in(namespace, lambda: socket.create_server(("0.0.0.0", 53)))
            stack.enter_context(_looping(listener, self._serve_connection))
            yield

    def _serve_datagram(self, bound: socket.socket) -> None:
        message, peer = bound.recvfrom(4_096)
        if not message:
            raise OSError("shut down")
        with suppress(IndexError, struct.error):
            bound.sendto(self.answer(message), peer)

    def _serve_connection(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError, IndexError, struct.error):
            connection.settimeout(5)
            stream = connection.makefile("rb")
            message = stream.read(int.from_bytes(stream.read(2), "big"))
            answer = self.answer(message)
            connection.sendall(len(answer).to_bytes(2, "big") + answer)


@contextmanager
def _looping(sock: socket.socket, serve: object) -> Iterator[None]:
    assert callable(serve)

    def loop() -> None:
        with suppress(OSError):
            while True:
                serve(sock)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        sock.close()


def _udp(address: str) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind((address, 53))
    return bound


def question(name: str, kind: int = A, number: int = 7) -> bytes:
    """Return a message that asks for a name."""
    return (
        struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + _labels(name) + struct.pack("!2H", kind, 1)
    )


def addresses(message: bytes) -> list[str]:
    """Return the addresses of an answer; an empty list for an error."""
    *_, end = _question(message)
    found, count = [], int.from_bytes(message[6:8], "big")
    for _ in range(count):
        while message[end] and message[end] < 0xC0:
            end += message[end] + 1
        end += 1 if not message[end] else 2
        kind, _, _, length = struct.unpack("!HHIH", message[end : end + 10])
        data = message[end + 10 : end + 10 + length]
        end += 10 + length
        if kind in {A, AAAA}:
            found.append(str(ipaddress.ip_address(data)))
    return found


def code(message: bytes) -> int:
    """Return the response code of an answer: 0 good, 3 no such name, 5 refused."""
    return message[3] & 15


def resolve(server: str, name: str, kind: int = A, *, tcp: bool = False) -> bytes | None:
    """Return a server's answer as seen from this thread's namespace, None where there is none."""
    message = question(name, kind)
    with suppress(OSError):
        if not tcp:
            with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET,
                               socket.SOCK_DGRAM) as asking:  # fmt: skip
                asking.settimeout(2)
                asking.connect((server, 53))
                asking.send(message)
                return asking.recv(4_096)
        with socket.create_connection((server, 53), timeout=2) as connection:
            connection.sendall(len(message).to_bytes(2, "big") + message)
            stream = connection.makefile("rb")
            return stream.read(int.from_bytes(stream.read(2), "big")) or None
    return None


def _question(message: bytes) -> tuple[str, int, int]:
    labels, at = [], 12
    while length := message[at]:
        labels.append(message[at + 1 : at + 1 + length].decode("latin-1").lower())
        at += length + 1
    return ".".join(labels), int.from_bytes(message[at + 1 : at + 3], "big"), at + 5


def _record(kind: int, ttl: int, data: bytes) -> bytes:
    return b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data


def _labels(name: str) -> bytes:
    return b"".join(bytes((len(x),)) + x.encode("ascii") for x in name.split(".")) + b"\0"
