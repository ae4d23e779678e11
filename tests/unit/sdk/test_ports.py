from types import SimpleNamespace
from typing import Any

import pytest

from atoll.errors import ValidationFailedError
from atoll.sdk import _ports
from atoll.sdk._ports import Wanted


def wanted(request: Any, method: str | None = None, **headers: str) -> Wanted:
    return _ports.wanted(request, method, headers or None, None)


@pytest.mark.parametrize(
    ("request_", "target", "port"),
    [("/a?b", "/a?b", None), ("http://localhost:8080", "/", 8080), ("ws://127.0.0.1:1/x", "/x", 1),
     ("https://elsewhere:8443/x", "/x", None), ("http://[::1]:5/?q", "/?q", 5)],
)  # fmt: skip
def test_addresses(request_: str, target: str, port: int | None) -> None:
    found = wanted(request_)
    assert (found.method, found.target, found.port) == ("GET", target, port)


@pytest.mark.parametrize("request_", ["", "x", "ftp://h/", "/a b", "/a\r\nX: y", "/ü", None, 7])
def test_what_is_no_address(request_: object) -> None:
    with pytest.raises(ValidationFailedError):
        wanted(request_)


def test_a_method_is_a_word() -> None:
    assert wanted("/", "patch").method == "PATCH"
    wrong: Any = 5
    for method in ("GET /x HTTP/1.1\r\n", wrong):
        with pytest.raises(ValidationFailedError):
            wanted("/", method)


@pytest.mark.parametrize(
    "headers", [{"a": "€"}, {"a": "x\r\nb: y"}, {"ü": "a"}, {"a": 1}, {None: "a"}, {"": "a"}]
)
def test_headers_that_cannot_be_sent_are_refused(headers: Any) -> None:
    with pytest.raises(ValidationFailedError, match="header"):
        _ports.encoded(_ports.wanted("/", None, headers, None))


def test_subprotocols_are_those_given_else_those_of_the_request() -> None:
    fields = [(b"Sec-WebSocket-Protocol", b"a, b")]
    assert _ports.offered(["c"], fields) == ["c"]
    assert _ports.offered((), fields) == ["a", "b"]
    wrong: Any
    for wrong in ("abc", [1], ["a b"], 5, None):
        with pytest.raises(ValidationFailedError, match="subprotocols"):
            _ports.offered(wrong, fields)


def test_the_request_of_a_framework_is_taken_apart() -> None:
    class Multi(dict[str, str]):
        def multi_items(self) -> list[tuple[str, str]]:
            return [("a", "1"), ("a", "2")]

    asked = SimpleNamespace(url="http://x/y", method="POST", headers=Multi(), body=b"b")
    found = wanted(asked)
    assert found == Wanted("POST", "/y", [("a", "1"), ("a", "2")], b"b", None)
    streamed = SimpleNamespace(url="/y", method="PUT", headers={}, stream=lambda: "stream")
    assert wanted(streamed).body == "stream"
    assert _ports.wanted(asked, None, None, None, take_body=False).body is None


def test_a_port_is_given_or_in_the_address() -> None:
    assert _ports.port_of(1, wanted("http://localhost:2/")) == 1
    assert _ports.port_of(None, wanted("http://localhost:2/")) == 2
    assert _ports.port_of(None, wanted("/"), 3) == 3
    with pytest.raises(ValidationFailedError):
        _ports.port_of(None, wanted("/"))


def test_fields_of_one_hop_and_what_frames_are_left_out() -> None:
    found = wanted("/", None, Connection="close, X-Hop", Host="h", Expect="x", A="b",
                   **{"X-Hop": "1", "Content-Length": "5"})  # fmt: skip
    assert _ports.fields_for(found, 80) == [(b"Host", b"localhost:80"), (b"A", b"b")]


def test_what_a_visitor_says_about_itself_is_replaced() -> None:
    fields = [(b"X-Forwarded-For", b"6.6.6.6"), (b"X_Forwarded_Proto", b"x"), (b"Forwarded", b"y"),
              (b"Host", b"evil"), (b"Content-Length", b"5"), (b"A", b"b")]  # fmt: skip
    assert _ports.visit_fields(fields, "host", "1.2.3.4", "https") == [
        (b"Host", b"host"), (b"Content-Length", b"5"), (b"A", b"b"),
        (b"X-Forwarded-Proto", b"https"), (b"X-Forwarded-For", b"1.2.3.4"),
    ]  # fmt: skip
    assert _ports.visit_fields([], "h", None, "http")[-1] == (b"X-Forwarded-Proto", b"http")


def test_websockets_are_recognised_and_their_handshake_made_anew() -> None:
    fields = [(b"Upgrade", b"WebSocket"), (b"Sec-WebSocket-Key", b"k"), (b"Cookie", b"c"),
              (b"Sec-WebSocket-Protocol", b"a, b")]  # fmt: skip
    assert _ports.wants_websocket(fields)
    assert not _ports.wants_websocket([(b"Upgrade", b"h2c")])
    assert _ports.subprotocols(fields) == ["a", "b"]
    assert ("Cookie", "c") in _ports.without_handshake(fields)
    assert not any("Sec" in name for name, _ in _ports.without_handshake(fields))


def test_hosts_and_bodies() -> None:
    asked = SimpleNamespace(url="wss://h:1/x")
    assert _ports.host_of(asked, []) == "h:1"
    assert _ports.host_of(asked, [(b"Host", b"other")]) == "other"
    assert _ports.scheme_of(asked) == "https"
    assert _ports.without_port("h:1") == "h"
    assert _ports.has_body([(b"content-length", b"0")])
    assert not _ports.has_body([])
