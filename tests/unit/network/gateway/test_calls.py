import pytest

from atoll.network.gateway import calls
from atoll.network.gateway.calls import Unusable
from atoll.network.gateway.protocol import Answered, Forward
from unit.network.gateway.test_messages import request

GET = request(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
HEAD = request(b"HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n")


def test_an_answer_is_framed_by_us() -> None:
    answered = Answered(
        status=200, headers=[("Content-Length", "99"), ("Transfer-Encoding", "chunked")], body=b"ab"
    )
    assert calls.answer(answered, GET) == (
        b"HTTP/1.1 200 \r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nab"
    )
    assert calls.answer(answered, HEAD).endswith(b"\r\n\r\n")


@pytest.mark.parametrize("field", [("A", "b\r\nC: d"), ("A b", "c"), ("", "c"), ("A", "\0")])
def test_one_head_does_not_become_two(field: tuple[str, str]) -> None:
    with pytest.raises(Unusable):
        calls.answer(Answered(status=200, headers=[field]), GET)
    with pytest.raises(Unusable):
        calls.forwarded(Forward(method="GET", url="http://a.test/", headers=[field]), b"")


@pytest.mark.parametrize("status", [0, 101, 199, 600])
def test_a_status_is_one_of_an_answer(status: int) -> None:
    with pytest.raises(Unusable):
        calls.answer(Answered(status=status, headers=[]), GET)


@pytest.mark.parametrize(
    ("method", "url"), [("GET", "/a"), ("CONNECT", "http://a.test/"), ("G T", "http://a.test/")]
)
def test_what_is_no_request_is_not_let_out(method: str, url: str) -> None:
    with pytest.raises(Unusable):
        calls.forwarded(Forward(method=method, url=url, headers=[]), b"")


def test_a_request_is_let_out_for_the_host_of_its_url() -> None:
    forward = Forward(method="put", url="https://B.test:444/p?q", headers=[("Host", "evil.test")])
    found = calls.forwarded(forward, b"body")
    assert found.fields == [(b"Host", b"b.test:444")]
    assert (found.method, found.encrypted, found.host, found.port) == (b"PUT", True, "b.test", 444)
    assert (found.target, found.body) == (b"/p?q", b"body")
