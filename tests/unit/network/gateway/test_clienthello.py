import ssl
import struct
from typing import NamedTuple

import pytest

from atoll.network.gateway import clienthello
from atoll.network.gateway.clienthello import Malformed


def hello(name: str | None, alpn: list[str] | None = None) -> bytes:
    """Return what Python's TLS sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(alpn)
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


class _Extension(NamedTuple):
    kind: int
    body: bytes


def made(*extensions: _Extension, tail: bytes = b"", record: int | None = None) -> bytes:
    """Return a ClientHello with these extensions, in records of at most *record* bytes."""
    listed = b"".join(struct.pack(">HH", e.kind, len(e.body)) + e.body for e in extensions)
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0"
    body += struct.pack(">H", len(listed)) + listed
    message = b"\x01" + len(body).to_bytes(3, "big") + body + tail
    step = record or len(message)
    parts = [message[at : at + step] for at in range(0, len(message), step)]
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(part)) + part for part in parts)


def named(*names: bytes, kind: int = 0) -> _Extension:
    entries = b"".join(bytes([kind]) + struct.pack(">H", len(n)) + n for n in names)
    return _Extension(0, struct.pack(">H", len(entries)) + entries)


def test_a_real_hello_tells_its_server_and_protocols() -> None:
    data = hello("www.example.com", ["h2", "http/1.1"])
    found = clienthello.read(data + b"more")
    assert found is not None
    assert found.server_name == "www.example.com"
    assert found.alpn == (b"h2", b"http/1.1")
    assert not found.encrypted
    assert found.length == len(data)


def test_a_hello_without_a_name_has_none() -> None:
    found = clienthello.read(hello(None))
    assert found is not None
    assert found.server_name == ""


def test_it_is_read_however_it_is_cut() -> None:
    data = made(named(b"a.example"), record=7)
    for end in range(len(data)):
        assert clienthello.read(data[:end]) is None
    found = clienthello.read(data)
    assert found is not None
    assert found.server_name == "a.example"


def test_an_encrypted_hello_is_noticed() -> None:
    found = clienthello.read(made(named(b"outer.example"), _Extension(0xFE0D, b"\0")))
    assert found is not None
    assert found.encrypted


@pytest.mark.parametrize(
    "data",
    [
        made(named(b"a.example"), named(b"b.example")),
        made(named(b"a.example", b"b.example")),
        made(named(b"a.example", kind=1)),
        made(named(b"")),
        made(named("ä.example".encode())),
        made(_Extension(0, b"\0\x0c\0\0\x01a")),
        made(_Extension(0, b"")),
        made(_Extension(5, b""), _Extension(5, b"")),
        made(named(b"a.example"), tail=b"\x01"),
        b"\x16\x03\x01\0\0",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x02\x01\0\x10",
        b"\x17\x03\x03\0\x10",
        b"\x16\x03\x01\0\x04\x02\0\0\0",
        b"\x16\x03\x01\0\x04\x01\xff\xff\xff",
        b"\x16\x03\x01\0\x05\x01\0\0\x01\x03",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_can_be_understood_in_more_than_one_way_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        clienthello.read(data)


def test_a_hello_without_extensions_is_one() -> None:
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0"
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    found = clienthello.read(b"\x16\x03\x01" + struct.pack(">H", len(message)) + message)
    assert found is not None
    assert found.server_name == ""


def test_one_that_never_ends_is_given_up() -> None:
    part = b"\x16\x03\x01" + struct.pack(">H", 1)
    data = part + b"\x01" + part + b"\0" + part + b"\xff" + part + b"\xf0"
    with pytest.raises(Malformed):
        clienthello.read(data + (part + b"a") * clienthello.MAX)
