"""Whose request it is, and what the server inside is told about it."""

import pytest

from atoll.proxy import route
from atoll.proxy.route import Visitor
from atoll.wire.http1 import Fields, Request, RequestReader
from atoll.wire.preview import Target

NAME = b"8080-box-tok.localhost:8787"


def request(fields: bytes = b"", line: bytes = b"GET /a?b HTTP/1.1", host: bytes = NAME) -> Request:
    head = RequestReader().feed(line + b"\r\nHost: " + host + b"\r\n" + fields + b"\r\n")[0]
    assert isinstance(head, Request)
    return head


def sent(asked: Request, visitor: Visitor = Visitor("9.8.7.6", "https")) -> Fields:  # noqa: B008
    return route.request_fields(asked, visitor, 8080, "box", NAME)


def test_a_preview_is_found_by_its_name() -> None:
    named = route.authority(request())
    assert named == NAME
    target = Target(8080, "box", "tok", "localhost")
    assert route.target_of(named, {"localhost"}) == target
    assert route.target_of(b"8080-BOX-tok.LocalHost.:1", {"localhost"}) == target
    assert route.target_of(named, None) == target
    assert route.target_of(named, {"example.com"}) is None
    assert route.target_of(b"localhost:8787", {"localhost"}) is None


@pytest.mark.parametrize(
    "host", [b"", b"a b", b"a/b", b"user@8080-box-tok.localhost", b"8080-box-tok.localhost:x",
             b"8080-box-tok.localhost\\@evil", b"[::1", b"-a.localhost", b"8080-box-tok.localhost:999999"],
)  # fmt: skip
def test_a_malformed_host_names_nothing(host: bytes) -> None:
    assert route.authority(request(host=host)) == b""
    assert route.target_of(host, None) is None


def test_a_whole_url_names_the_same_host_or_none() -> None:
    assert route.authority(request(line=b"GET http://" + NAME + b"/x HTTP/1.1")) == NAME
    assert route.authority(request(line=b"GET http://evil/x HTTP/1.1")) == b""


def test_every_host_line_is_looked_at_when_a_request_begins() -> None:
    first = b"GET / HTTP/1.1\r\nHost: localhost\r\nhost:\t8080-box-tok.localhost"
    assert route.sniff(first, {"localhost"})
    assert not route.sniff(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Host: " + NAME, {"localhost"})


@pytest.mark.parametrize(
    ("target", "path"),
    [(b"/a?b", b"/a?b"), (b"http://h/a", b"/a"), (b"HTTPS://h", b"/"), (b"http://h?q", b"/?q"),
     (b"*", b"*"), (b"//evil/x", b"//evil/x")],
)  # fmt: skip
def test_targets_become_paths(target: bytes, path: bytes) -> None:
    assert route.path_of(target) == path


def test_the_server_inside_knows_its_host_and_is_told_about_the_visitor() -> None:
    fields = sent(request(b"Cookie: a=b\r\nOrigin: http://" + NAME + b"\r\n"))
    assert fields == [
        (b"Host", b"localhost:8080"),
        (b"Cookie", b"a=b"),
        (b"Origin", b"http://" + NAME),
        (b"X-Forwarded-Host", NAME),
        (b"X-Forwarded-Proto", b"https"),
        (b"X-Forwarded-For", b"9.8.7.6"),
        (b"X-Original-URL", b"https://" + NAME + b"/a?b"),
        (b"X-Sandbox-Name", b"box"),
        (b"Connection", b"keep-alive"),
    ]


@pytest.mark.parametrize(
    "name", [b"X-Forwarded-For", b"x-forwarded-HOST", b"X_Forwarded_Proto", b"Forwarded",
             b"X-Real-IP", b"X-Original-URL", b"X-Sandbox-Name", b"X-Atoll-Key", b"X-Rewrite-URL",
             b"CF-Container-Target-Port", b"Keep-Alive", b"Proxy-Authorization",
             b"Transfer_Encoding2"],
)  # fmt: skip
def test_what_a_visitor_says_under_our_names_never_arrives(name: bytes) -> None:
    values = [value for _, value in sent(request(name + b": evil\r\n"))]
    assert (b"evil" in values) == (name == b"Transfer_Encoding2")


def test_connection_names_fields_of_one_hop_but_not_those_that_frame() -> None:
    fields = dict(sent(request(b"Connection: close, X-Gone, Host\r\nX-Gone: 1\r\nX-Kept: 2\r\n")))
    assert b"X-Gone" not in fields
    assert fields[b"X-Kept"] == b"2"
    assert fields[b"Host"] == b"localhost:8080"


def test_the_framing_of_a_body_is_written_anew() -> None:
    post = b"POST / HTTP/1.1"
    with_length = sent(request(b"Content-Length: 3\r\nConnection: content-length\r\n", post))
    assert [value for name, value in with_length if name == b"Content-Length"] == [b"3"]
    chunked = sent(request(b"Transfer-Encoding: ChUnKeD\r\n", post))
    assert (b"Transfer-Encoding", b"chunked") in chunked


def test_only_websockets_are_upgraded() -> None:
    asked = b"Connection: Upgrade\r\nUpgrade: %b\r\n"
    assert (b"Upgrade", b"websocket") in sent(request(asked % b"websocket"))
    other = dict(sent(request(asked % b"h2c" + b"HTTP2-Settings: x\r\n")))
    assert other[b"Connection"] == b"keep-alive"
    assert not {b"Upgrade", b"HTTP2-Settings"} & other.keys()


def test_trailers_may_be_asked_for() -> None:
    fields = dict(sent(request(b"TE: trailers, deflate;q=0.5\r\n")))
    assert fields[b"TE"] == b"trailers"
    assert fields[b"Connection"] == b"keep-alive, TE"


def test_answers_pass_untouched_but_for_their_hop() -> None:
    fields = [
        (b"Location", b"http://elsewhere/"), (b"Content-Encoding", b"gzip"),
        (b"Connection", b"close, X-Hop"), (b"X-Hop", b"1"), (b"Keep-Alive", b"timeout=5"),
        (b"Content-Length", b"5"), (b"Set-Cookie", b"a=b; Path=/"), (b"Set-Cookie", b"c=d"),
    ]  # fmt: skip
    assert route.response_fields(fields, "h") == [
        (b"Location", b"http://elsewhere/"), (b"Content-Encoding", b"gzip"),
        (b"Content-Length", b"5"), (b"Set-Cookie", b"a=b; Path=/"), (b"Set-Cookie", b"c=d"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cookie", "own"),
    [
        (b"a=b; Domain=example.com; Secure", b"a=b; Secure"),
        (b"a=b; domain = .EXAMPLE.com", b"a=b"),
        (b'a=b; Domain="example.com"; Path=/', b"a=b; Path=/"),
        (b"a=b; Domain=8080-box-tok.example.com", b"a=b; Domain=8080-box-tok.example.com"),
        (b"domain=x; Path=/", b"domain=x; Path=/"),
    ],
)
def test_no_cookie_reaches_other_previews(cookie: bytes, own: bytes) -> None:
    fields = route.response_fields([(b"set-cookie", cookie)], "8080-box-tok.example.com")
    assert fields == [(b"set-cookie", own)]


PROXIES = {"10.0.0.1", "10.0.0.2", ""}


@pytest.mark.parametrize(
    ("peer", "told", "visitor"),
    [
        ("1.2.3.4", b"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n",
         Visitor("1.2.3.4", "http")),
        ("10.0.0.1", b"X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.0.0.2\r\nX-Forwarded-Proto: https\r\n",
         Visitor("1.2.3.4", "https")),
        ("10.0.0.1", b"X-Forwarded-For: 6.6.6.6, nonsense\r\nX-Forwarded-Proto: ftp\r\n",
         Visitor("10.0.0.1", "http")),
        ("10.0.0.1", b"", Visitor("10.0.0.1", "http")),
        ("10.0.0.1", b"X-Forwarded-For: 10.0.0.2\r\n", Visitor("10.0.0.2", "http")),
        ("", b"", Visitor("127.0.0.1", "http")),
    ],
)  # fmt: skip
def test_only_trusted_proxies_say_who_visits(peer: str, told: bytes, visitor: Visitor) -> None:
    found = route.visitor_of(Visitor(peer, "http"), request(told), PROXIES.__contains__)
    assert found == visitor
