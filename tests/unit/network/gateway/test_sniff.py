import pytest

from atoll.network.gateway import sniff
from atoll.network.gateway.sniff import Kind


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\x16\x03\x01\x02", Kind.TLS),
        (b"\x16", None),
        (b"GET / HTTP/1.1\r\n", Kind.HTTP),
        (b"get / http/1.1\n", Kind.HTTP),
        (b"\r\n\r\n GET / HTTP/1.1\r\n", Kind.HTTP),
        (b"BREW /pot HTTP/1.1\r\n", Kind.HTTP),
        (b"GET\t/\tHTTP/1.0\r\n", Kind.HTTP),
        (b"PRI * HTTP/2.0\r\n", Kind.HTTP),
        (b"CONNECT a.example:443 HTTP/1.1\r\n", Kind.HTTP),
        (b"GET /", None),
        (b"GE", None),
        (b"\r\n", None),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Kind.OTHER),
        (b"*1\r\n$4\r\nPING\r\n", Kind.OTHER),
        (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", Kind.OTHER),
        (b"\x10\x20\x00\x04MQTT", Kind.OTHER),
        (b"<?xml version='1.0'?>", Kind.OTHER),
        (b"(GET / HTTP/1.1)", Kind.OTHER),
    ],
)
def test_the_first_bytes_tell(data: bytes, found: Kind | None) -> None:
    assert sniff.kind(data, web=False) is found


OLD_HELLOS = [b"\x80\x2e\x01\x03\x03", b"\x80\x2e\x01\0\x02", b"\0\x30\x02\x01\x03\x01"]


@pytest.mark.parametrize("web", [True, False])
@pytest.mark.parametrize(
    "data",
    [
        *OLD_HELLOS,
        b"\x14\x03\x03\0\x01\x01",
        b"\x15\x03\x01\0\x02\x01\x5a",
        b"\x17\x03\x03\0\x01\0",
        b"\x18\x03\x03\0\x01\0",
        b"\x16\x02\x01\0\x01\0",
        b"\x16\x0f\x01\0\x01\0",
    ],
)
def test_what_some_server_takes_for_tls_is_told_however_it_comes(data: bytes, web: bool) -> None:
    assert sniff.kind(data, web=web) is Kind.DISGUISED
    early = {sniff.kind(data[:count], web=web) for count in range(1, len(data))}
    assert early <= {None, Kind.DISGUISED} or web


@pytest.mark.parametrize("data", [b"SSH-2.0-x\r\n", b"\0\0", b"G"])
def test_on_ports_of_the_web_nothing_but_the_web_is_spoken(data: bytes) -> None:
    assert sniff.kind(data, web=True) is Kind.HTTP


def test_a_line_without_end_is_decided_at_last() -> None:
    assert sniff.kind(b"GET /" + b"a" * sniff.MAX, web=False) is Kind.HTTP
    assert sniff.kind(b" " * sniff.MAX, web=False) is Kind.HTTP


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", Kind.OTHER),
        (b"\x16", Kind.OTHER),
        (b"stats", Kind.OTHER),
        (b"\r\nstats", Kind.OTHER),
        (b"GET /", Kind.HTTP),
        (b"get\t/", Kind.HTTP),
    ],
)
def test_an_end_decides(data: bytes, found: Kind) -> None:
    assert sniff.kind(data, web=False, ended=True) is found
