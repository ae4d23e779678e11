import pytest

from atoll.network.gateway import messages
from atoll.wire.http1 import Malformed, Request, RequestReader


def request(head: bytes) -> Request:
    (event, *_) = RequestReader().feed(head)
    assert isinstance(event, Request)
    return event


@pytest.mark.parametrize(
    ("target", "host", "path"),
    [
        (b"/a?b", b"a.test", b"/a?b"),
        (b"http://a.test/p?q", b"a.test", b"/p?q"),
        (b"http://A.TEST.:80", b"a.test:80", b"/"),
        (b"http://a.test?q", b"a.test", b"/?q"),
    ],
)
def test_a_target_goes_out_as_a_path(target: bytes, host: bytes, path: bytes) -> None:
    head = b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, host)
    assert messages.path(request(head)) == path


@pytest.mark.parametrize("target", [b"http://b.test/", b"http://a.test@b.test/", b"*"])
def test_a_target_for_another_host_is_malformed(target: bytes) -> None:
    with pytest.raises(Malformed):
        messages.path(request(b"GET %b HTTP/1.1\r\nHost: a.test\r\n\r\n" % target))


def test_what_is_between_two_hops_stays_there() -> None:
    head = (
        b"GET / HTTP/1.1\r\nHost: A.test:8080\r\nConnection: X, Host, Authorization\r\nX: 1\r\n"
        b"Authorization: a\r\nTE: trailers\r\nKeep: k\r\n\r\n"
    )
    assert messages.request_fields(request(head), "a.test") == [
        (b"Host", b"a.test:8080"),
        (b"Authorization", b"a"),
        (b"Keep", b"k"),
    ]


def test_an_address_is_a_host_in_brackets() -> None:
    assert messages.authority("2001:db8::1", "[2001:DB8::1]:81") == b"[2001:db8::1]:81"
    assert messages.authority("2001:db8::1", "[2001:DB8::1]") == b"[2001:db8::1]"


def test_a_body_goes_out_framed_as_it_came() -> None:
    chunked = request(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    sized = request(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
    assert messages.framed([], chunked) == [(b"Transfer-Encoding", b"chunked")]
    assert messages.framed([], sized) == [(b"Content-Length", b"3")]


def test_trailers_cannot_frame() -> None:
    assert messages.trailers([(b"Content-Length", b"1"), (b"A", b"b")]) == [(b"A", b"b")]


@pytest.mark.parametrize(
    "url",
    ["/a", "ftp://a.test/", "http://", "http://a.test:99999/", "http://a b/", "http://a.test/ä",
     "http://a.test/\r\n"],
)  # fmt: skip
def test_what_is_no_url_for_us_has_no_destination(url: str) -> None:
    assert messages.destination(url) is None


def test_a_url_has_a_destination() -> None:
    assert messages.destination("https://A.test/p?q") == ("https", "a.test", 443, b"/p?q")
    assert messages.destination("http://127.1:81") == ("http", "127.0.0.1", 81, b"/")


def test_an_answer_to_head_has_no_body() -> None:
    assert messages.refusal(520, "why", head_only=True).endswith(b"\r\n\r\n")
    assert messages.refusal(520, "why", head_only=False).endswith(b"atoll: why\n")
