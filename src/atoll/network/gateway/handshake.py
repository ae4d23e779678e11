"""Sees to it that TLS which passes unopened stays with the server it was let out for. Pure.

A server may ask for a second ClientHello (HelloRetryRequest, RFC 8446, 4.1.4). Nothing on our side
keeps the client from naming another server in it, and some servers would believe that one. So
records of the client are followed until the server has answered, and further if that answer was a
request to retry.
"""

from atoll.network.gateway import clienthello
from atoll.network.gateway.clienthello import Malformed

_HANDSHAKE = 22
_SERVER_HELLO = 2
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random of a ServerHello that is a HelloRetryRequest."""

_ANSWER = 5 + 4 + 2 + 32
"""Bytes of the server's first record up to the end of the random."""


class Follower:
    """Follows one handshake.

    Args:
        hello: the first ClientHello.
    """

    def __init__(self, hello: clienthello.ClientHello) -> None:
        self._name = hello.server_name
        self._held = b""
        self._skip = hello.length  # bytes that may pass without a look
        self._answer: bytes | None = b""
        self._retry = False
        self._settled = False

    def down(self, data: bytes) -> bytes:
        """Look at what the server sends; all of it may pass."""
        if self._answer is not None:
            self._answer += data[: _ANSWER - len(self._answer)]
            if len(self._answer) == _ANSWER or self._answer[:1] != bytes([_HANDSHAKE]):
                answer, self._answer = self._answer, None
                kind = answer[5:6] if answer[:1] == bytes([_HANDSHAKE]) else b""
                self._retry = kind == bytes([_SERVER_HELLO]) and answer[-32:] == _RETRY
                self._settled = not self._retry
        return data

    def up(self, data: bytes) -> bytes:
        """Return what of the client's bytes may pass now.

        Raises:
            Malformed: they name another server.
        """
        self._held += data
        passed = b""
        while self._held and (part := self._next()):
            passed += part
        return passed

    def _next(self) -> bytes:
        """Take what may pass off the front of what is held; empty: more must come first."""
        if self._settled:
            return self._take(len(self._held))
        if self._skip:
            part = self._take(self._skip)
            self._skip -= len(part)
            return part
        if len(self._held) < 5:
            return b""
        if self._held[0] == _HANDSHAKE:
            return self._second()
        self._skip = 5 + int.from_bytes(self._held[3:5], "big")
        return self._next()

    def _second(self) -> bytes:
        if not self._retry:
            raise Malformed("a second handshake message before the server's first")
        hello = clienthello.read(self._held)
        if hello is None:
            return b""
        if hello.server_name != self._name or hello.encrypted:
            raise Malformed("the second ClientHello names another server")
        self._settled = True
        return self._take(len(self._held))

    def _take(self, count: int) -> bytes:
        part, self._held = self._held[:count], self._held[count:]
        return part
