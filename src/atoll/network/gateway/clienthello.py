"""Reads the ClientHello that opens TLS: which server it asks for. Pure.

Strict: what two readers could understand differently is refused, as are several names, or one in
an encrypted hello that the server sees and we do not. RFC 8446 section 4, RFC 6066 section 3.
"""

from typing import NamedTuple

MAX = 65_536
"""Bytes of a ClientHello with its records. Post-quantum key shares make about 2,000."""

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ALPN, _ENCRYPTED = 0x0000, 0x0010, 0xFE0D
_HOST_NAME = 0
_MAX_RECORD = (1 << 14) + 256


class Malformed(Exception):  # noqa: N818  # a state of the message
    """It is no ClientHello, or one that can be understood in more than one way."""


class ClientHello(NamedTuple):
    """What matters of it.

    Attributes:
        server_name: as sent; empty: none.
        encrypted: it carries an encrypted ClientHello, whose name nobody but the server reads.
        alpn: protocols it offers.
        length: bytes that it took, with its records.
    """

    server_name: str
    encrypted: bool
    alpn: tuple[bytes, ...]
    length: int


def read(data: bytes) -> ClientHello | None:
    """Return the ClientHello at the beginning of *data*, or None while it is not whole.

    Raises:
        Malformed: it never will be one.
    """
    found = _message(data)
    if found is None:
        if len(data) >= MAX:
            raise Malformed("the ClientHello is too large")
        return None
    message, length = found
    extensions = _extensions(message)
    return ClientHello(
        server_name=_server_name(extensions.get(_SERVER_NAME)),
        encrypted=_ENCRYPTED in extensions,
        alpn=_alpn(extensions.get(_ALPN)),
        length=length,
    )


class _Reader:
    """Takes bytes off the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if self.left < count:
            raise Malformed("a length is beyond the end")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> "_Reader":
        """Take a vector whose length has *size* bytes."""
        return _Reader(self.take(self.number(size)))

    def end(self) -> None:
        if self.left:
            raise Malformed("bytes are left over")


def _message(data: bytes) -> tuple[bytes, int] | None:
    """Return the body of the first handshake message and the bytes that its records took."""
    message, at = b"", 0
    while True:
        if len(message) >= 4:
            if message[0] != _CLIENT_HELLO:
                raise Malformed("the first message is no ClientHello")
            size = 4 + int.from_bytes(message[1:4], "big")
            if size > MAX or len(message) > size:
                raise Malformed("the ClientHello's length does not fit")
            if len(message) == size:
                return message[4:], at
        head = data[at : at + 5]
        if head[:1] not in {b"", b"\x16"} or head[1:2] not in {b"", b"\x03"}:
            raise Malformed("a record that is no handshake")
        length = int.from_bytes(head[3:5], "big")
        if len(head) == 5 and not 0 < length <= _MAX_RECORD:
            raise Malformed("a record's length does not fit")
        if len(head) < 5 or len(data) < at + 5 + length:
            return None
        message += data[at + 5 : at + 5 + length]
        at += 5 + length


def _extensions(message: bytes) -> dict[int, bytes]:
    reader = _Reader(message)
    reader.take(2 + 32)  # version, random
    reader.vector(1)  # session
    reader.vector(2)  # ciphers
    reader.vector(1)  # compressions
    if not reader.left:
        return {}
    listed, found = reader.vector(2), dict[int, bytes]()
    reader.end()
    while listed.left:
        kind, body = listed.number(2), listed.vector(2)
        if kind in found:
            raise Malformed("an extension stands twice")
        found[kind] = body.take(body.left)
    return found


def _server_name(body: bytes | None) -> str:
    if body is None:
        return ""
    reader = _Reader(body)
    entries = reader.vector(2)
    reader.end()
    if entries.number(1) != _HOST_NAME:
        raise Malformed("a server name of an unknown kind")
    name = entries.vector(2)
    entries.end()
    text = name.take(name.left)
    if not text or not text.isascii():
        raise Malformed("a server name that is none")
    return text.decode("ascii")


def _alpn(body: bytes | None) -> tuple[bytes, ...]:
    if body is None:
        return ()
    reader = _Reader(body)
    entries, found = reader.vector(2), []
    reader.end()
    while entries.left:
        protocol = entries.vector(1)
        found.append(protocol.take(protocol.left))
    return tuple(found)
