"""Ways round a list of hosts: spellings, heads and hellos that two readers may understand differently.

What counts is an answer that is not the gateway's own. There need be no list: without one the same
attempts are answered, which is how a probe can tell that there was something to be kept from.
"""

import socket
from collections.abc import Iterator, Sequence

_SECONDS = 3.0
_OURS = b"atoll-egress:"


def plain(address: str) -> list[str]:
    """Return whether a web server at *address* answers a plain request: a list of one or none."""
    return ["plain"] if _answered(address, 80, _head(f"Host: {address}")) else []


def gaps(allowed: str, address: str, server: str) -> list[str]:
    """14: nothing but the allowed host is reached, however a request is spelled.

    Args:
        allowed: the only host on the list; it has no address.
        address: IPv4, of a web server that is not on the list.
        server: a name of it.
    """
    tries: list[tuple[str, str, int, bytes]] = [
        *((label, address, 80, data) for label, data in _heads(allowed, address, server)),
        *((label, address, 443, data) for label, data in _hellos(allowed, server)),
        *((f"port {port}", address, port, b"x\r\n") for port in (7, 22, 53, 853)),
        *((f"as {spelled}", spelled, 80, _head(f"Host: {spelled}"))
          for spelled in (*_spelled(address), *_named(server))),
    ]  # fmt: skip
    return [label for label, host, port, data in tries if _answered(host, port, data)]


def _heads(allowed: str, address: str, name: str) -> Iterator[tuple[str, bytes]]:
    for host in (
        address, name, f"{name}.", name.upper(), allowed, f"{allowed}.", allowed.upper(),
        f"{allowed}\0.{name}", f"{name}\0.{allowed}", f"{allowed}@{address}", f"{address}@{allowed}",
        f"{allowed}:80@{address}", f"{allowed}#{name}", f"{name}/{allowed}", f"{name}\\@{allowed}",
        f"{name}%00.{allowed}", f"{allowed}, {name}", *_spelled(address),
    ):  # fmt: skip
        yield f"host {host!r}", _head(f"Host: {host}")
    yield "two hosts", _head(f"Host: {allowed}\r\nHost: {name}")
    yield "a folded host", _head(f"Host: {allowed}\r\n {name}")
    yield "no host", _head("X: y")
    yield "an absolute target", _head(f"Host: {name}", f"http://{allowed}/")
    yield "another's absolute target", _head(f"Host: {allowed}", f"http://{name}/")
    yield "connect", _head(f"Host: {allowed}", f"{address}:80", "CONNECT")
    yield "a chain of connects", (
        _head(f"Host: {allowed}", f"{allowed}:80", "CONNECT")
        + _head(f"Host: {name}", f"{address}:80", "CONNECT") + _head(f"Host: {name}")
    )  # fmt: skip
    yield "a second request", _head(f"Host: {allowed}") + _head(f"Host: {name}")
    yield "HTTP/1.0", f"GET / HTTP/1.0\r\nHost: {name}\r\n\r\n".encode()
    yield "HTTP/2 at once", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)


def _head(lines: str, target: str = "/", method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n\r\n".encode()


def _spelled(address: str) -> Sequence[str]:
    """Return other texts that the C library takes as *address*."""
    number = int.from_bytes(socket.inet_aton(address), "big")
    first, rest = number >> 24, number & 0xFFFFFF
    return str(number), hex(number), f"{first}.{rest}", f"0{first:o}.{rest}", f"::ffff:{address}"


def _named(name: str) -> Sequence[str]:
    return name, f"{name}.", name.upper()


def _hellos(allowed: str, name: str) -> Iterator[tuple[str, bytes]]:
    for server in (allowed, name, "", f"{allowed}\0.{name}", f"{name}."):
        yield f"hello to {server!r}", _record(_hello(server))
    hello = _hello(name)
    yield "a hello in pieces", b"".join(_record(bytes([byte])) for byte in hello)
    yield "two names", _record(_hello(allowed, name))


def _hello(*names: str) -> bytes:
    """Return a ClientHello of TLS 1.2, which every server answers with something."""
    entries = b"".join(b"\0" + _vector(2, name.encode()) for name in names if name)
    server = b"\0\0" + _vector(2, _vector(2, entries)) if entries else b""
    groups = b"\0\x0a" + _vector(2, _vector(2, b"\0\x1d\0\x17"))
    signatures = b"\0\x0d" + _vector(2, _vector(2, b"\4\3\10\4\4\1"))
    ciphers = b"\xc0\x2f\xc0\x2b\xc0\x30\0\x9c"
    body = b"\3\3" + bytes(32) + _vector(1, b"") + _vector(2, ciphers) + _vector(1, b"\0")
    return b"\1" + _vector(3, body + _vector(2, server + groups + signatures))


def _record(message: bytes) -> bytes:
    return b"\x16\3\1" + _vector(2, message)


def _vector(size: int, content: bytes) -> bytes:
    return len(content).to_bytes(size, "big") + content


def _answered(host: str, port: int, data: bytes) -> bool:
    """Whether anything but a refusal of the gateway comes back."""
    told = b""
    try:
        with socket.create_connection((host, port), timeout=_SECONDS) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while (piece := connection.recv(1 << 16)) and len(told) < 1 << 16:
                told += piece
    except (OSError, ValueError):  # ValueError: a name that cannot be encoded
        pass
    answers = told.lower().split(b"http/1.")[1:] if told.startswith(b"HTTP/") else [told]
    return any(answer and _OURS not in answer.partition(b"\r\n\r\n")[0] for answer in answers)
