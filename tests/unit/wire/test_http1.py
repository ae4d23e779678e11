"""What is understood of HTTP/1.1, and what is refused: the cases that smuggling lives on."""

from typing import Any

import pytest

from atoll.wire import http1
from atoll.wire.http1 import (
    Data,
    End,
    Event,
    Malformed,
    Request,
    RequestReader,
    Response,
    ResponseReader,
    Rest,
    Truncated,
)


def read(data: bytes) -> list[Event]:
    return RequestReader().feed(data)


def test_a_request_without_a_body() -> None:
    head, end = read(b"GET /a?b HTTP/1.1\r\nHost: h\r\nX-Y: z\r\n\r\n")
    assert isinstance(head, Request)
    assert (head.method, head.target, head.version) == (b"GET", b"/a?b", "1.1")
    assert head.fields == [(b"Host", b"h"), (b"X-Y", b"z")]
    assert (head.keep_alive, head.body, head.chunked, head.upgrade) == (True, False, False, None)
    assert end == End([])


def test_bytes_may_come_one_by_one() -> None:
    reader, events = RequestReader(), list[Event]()
    whole = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
    for index in range(len(whole)):
        events += reader.feed(whole[index : index + 1])
        assert reader.begun == (0 <= index < whole.index(b"abc") - 1)
    assert b"".join(e.data for e in events if isinstance(e, Data)) == b"abc"
    assert events[-1] == End([])


def test_chunks_and_trailers() -> None:
    events = read(
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n"
        b"3;x=y\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"
    )
    head = events[0]
    assert isinstance(head, Request)
    assert head.chunked
    assert head.body
    assert events[1:] == [Data(b"abc"), End([(b"X-Sum", b"1")])]


def test_requests_that_were_sent_ahead_are_told_in_order() -> None:
    events = read(b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert [e.target for e in events if isinstance(e, Request)] == [b"/1", b"/2"]


def test_what_follows_an_upgrade_is_left_alone() -> None:
    reader = RequestReader()
    events = reader.feed(
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\nraw"
    )
    assert isinstance(events[0], Request)
    assert events[0].upgrade == b"websocket"
    assert events[1:] == [End([]), Rest(b"raw")]
    reader.resume()
    assert isinstance(reader.feed(b"GET /2 HTTP/1.1\r\nHost: h\r\n\r\n")[0], Request)


HOST = b"Host: h\r\n"


@pytest.mark.parametrize(
    ("line", "fields", "status"),
    [
        (b"POST / HTTP/1.1", b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"POST / HTTP/1.1", b"Content-Length: 3\r\nContent-Length: 4\r\n", 400),
        (b"POST / HTTP/1.1", b"Content-Length: 3, 3\r\n", 400),
        (b"POST / HTTP/1.1", b"Content-Length: +3\r\n", 400),
        (b"POST / HTTP/1.1", b"Transfer-Encoding: xchunked\r\n", 501),
        (b"POST / HTTP/1.1", b"Transfer-Encoding: chunked, identity\r\n", 501),
        (b"POST / HTTP/1.1", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n", 501),
        (b"POST / HTTP/1.1", b"Transfer-Encoding : chunked\r\n", 400),
        (b"POST / HTTP/1.1", b"Transfer-Encoding: \x0bchunked\r\n", 501),
        (b"POST / HTTP/1.0", b"Transfer-Encoding: chunked\r\n", 501),
        (b"GET / HTTP/1.1", b"X: a\r\n folded\r\n", 400),
        (b"GET / HTTP/1.1", b"X: a\x00b\r\n", 400),
        (b"GET / HTTP/1.1", b"X: a\rY: b\r\n", 400),
        (b"GET / HTTP/1.1", b"X\x7f: a\r\n", 400),
        (b"GET / HTTP/1.1", b"Host: other\r\n", 400),
        (b"GET / HTTP/2.0", b"", 505),
        (b"GET / HTTP/1.2", b"", 505),
        (b"CONNECT h:80 HTTP/1.1", b"", 405),
        (b"GET /\x80 HTTP/1.1", b"", 400),
        (b"G T / HTTP/1.1", b"", 400),
        (b"GET  / HTTP/1.1", b"", 400),
    ],
)
def test_what_two_servers_could_read_differently_is_refused(
    line: bytes, fields: bytes, status: int
) -> None:
    with pytest.raises(Malformed) as refused:
        read(line + b"\r\n" + HOST + fields + b"\r\nabc")
    assert refused.value.status in {status, 400}


def test_a_request_without_a_host_is_refused_but_for_http_1_0() -> None:
    with pytest.raises(Malformed):
        read(b"GET / HTTP/1.1\r\n\r\n")
    head = read(b"GET / HTTP/1.0\r\n\r\n")[0]
    assert isinstance(head, Request)
    assert not head.keep_alive


def test_bare_line_feeds_are_refused() -> None:
    with pytest.raises(Malformed):
        read(b"GET / HTTP/1.1\nHost: h\n\n")


@pytest.mark.parametrize("size", [b"3 ", b"0x3", b"-1", b"ffffffffffffffffff", b"3\n"])
def test_malformed_chunks_are_refused(size: bytes) -> None:
    reader = RequestReader()
    reader.feed(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
    with pytest.raises(Malformed):
        reader.feed(size + b"\r\nabc\r\n0\r\n\r\n")


def test_heads_are_bounded_whether_whole_or_not() -> None:
    long = b"a" * (http1.MAX_HEAD + 1)
    for data in (
        b"GET /" + long + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nX: " + long + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nX: " + long,
        b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a:\r\n" * http1.MAX_FIELDS + b"\r\n",
    ):
        with pytest.raises(Malformed) as refused:
            read(data)
        assert refused.value.status in {414, 431}


def test_trailers_are_bounded() -> None:
    reader = RequestReader()
    reader.feed(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    trailer = b"X: " + b"a" * 1_000 + b"\r\n"
    with pytest.raises(Malformed):
        reader.feed(trailer * (http1.MAX_HEAD // 1_000 + 2))


def answer(data: bytes, method: bytes = b"GET") -> list[Event]:
    reader = ResponseReader()
    reader.expect(method)
    return reader.feed(data)


def test_an_answer_with_a_length() -> None:
    head, body, end = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
    assert isinstance(head, Response)
    assert (head.status, head.reason, head.length, head.keep_alive) == (200, b"OK", 3, True)
    assert (body, end) == (Data(b"abc"), End([]))


def test_an_answer_ends_with_the_connection_where_nothing_else_says_so() -> None:
    reader = ResponseReader()
    reader.expect(b"GET")
    head = reader.feed(b"HTTP/1.0 200 OK\r\n\r\nabc")[0]
    assert isinstance(head, Response)
    assert head.length is None
    assert not head.keep_alive
    assert reader.end() == [End([])]
    with pytest.raises(Truncated):
        reader.end()


def test_an_answer_that_is_cut_is_told() -> None:
    reader = ResponseReader()
    reader.expect(b"GET")
    reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc")
    with pytest.raises(Truncated):
        reader.end()


def test_informational_answers_come_before_the_real_one() -> None:
    events = answer(
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
    )
    heads = [event for event in events if isinstance(event, Response)]
    assert [(head.status, head.informational) for head in heads] == [(103, True), (204, False)]


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_some_answers_have_no_body_whatever_they_say(status: bytes) -> None:
    events = answer(b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\n")
    assert isinstance(events[0], Response)
    assert events[0].length == 0
    assert events[1] == End([])


def test_the_answer_to_head_has_no_body_and_another_request_may_follow() -> None:
    reader = ResponseReader()
    reader.expect(b"HEAD")
    events = reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    assert events[1] == End([])
    reader.expect(b"GET")
    assert isinstance(reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")[0], Response)
    assert not reader.spoiled


def test_a_body_after_the_answer_to_head_spoils_the_connection() -> None:
    reader = ResponseReader()
    reader.expect(b"HEAD")
    reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde")
    assert reader.spoiled


def test_a_change_of_protocol_leaves_what_follows() -> None:
    events = answer(
        b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x00"
    )
    assert isinstance(events[0], Response)
    assert not events[0].informational
    assert events[-1] == Rest(b"\x81\x00")


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n",
        b"HTTP/1.1 999 OK\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n",
        b"220 smtp ready\r\n",
    ],
)
def test_answers_that_cannot_be_forwarded(head: bytes) -> None:
    with pytest.raises(Malformed):
        answer(head + b"\r\n")


def test_a_second_answer_to_head_is_one_too_many() -> None:
    with pytest.raises(Malformed):
        answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * 2, b"HEAD")


def test_what_is_written_is_read_back() -> None:
    request = http1.write_request(b"PUT", b"/x", [(b"Host", b"h"), (b"Content-Length", b"0")])
    assert request == b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
    head = http1.write_response(200, b"OK", [(b"Transfer-Encoding", b"chunked")])
    body = http1.write_chunk(b"a" * 17) + http1.write_last_chunk([(b"T", b"1")])
    events = answer(head + body)
    assert events[1:] == [Data(b"a" * 17), End([(b"T", b"1")])]


def _response(**changes: Any) -> http1.Response:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
    (found, *_) = _answer(head)
    return found._replace(**changes)


def _answer(head: bytes) -> list[http1.Response]:
    reader = http1.ResponseReader()
    reader.expect(b"GET")
    return [event for event in reader.feed(head) if isinstance(event, http1.Response)]


def _asked(method: bytes = b"GET", version: str = "1.1") -> http1.Request:
    head = method + b" / HTTP/" + version.encode() + b"\r\nHost: h\r\n\r\n"
    (found, *_) = http1.RequestReader().feed(head)
    assert isinstance(found, http1.Request)
    return found


def test_a_body_of_known_length_goes_on_as_it_is_and_another_in_chunks() -> None:
    assert http1.framing(_response(), _asked()) == http1.Framing()
    assert http1.framing(_response(length=None), _asked()) == http1.Framing(chunked=True)
    assert http1.framing(_response(length=None), _asked(b"HEAD")) == http1.Framing()


def test_who_knows_no_chunks_has_a_body_up_to_the_end_of_the_connection() -> None:
    old = _asked(version="1.0")
    assert http1.framing(_response(length=None), old) == http1.Framing(to_the_end=True)


@pytest.mark.parametrize(
    ("version", "keep", "said"),
    [("1.1", True, None), ("1.1", False, b"close"), ("1.0", True, b"keep-alive")],
)
def test_a_head_says_whether_the_connection_goes_on(
    version: str, keep: bool, said: bytes | None
) -> None:
    asked = _asked(version=version)
    head = http1.relayed(_response(), asked, [(b"A", b"b")], chunked=False, keep=keep)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (b"Connection: " + (said or b"")) in head if said else b"Connection" not in head


def test_informational_answers_are_only_for_those_who_know_them() -> None:
    early = _response(status=103, reason=b"Early Hints")
    assert http1.relayed(early, _asked(), [], chunked=False, keep=False).startswith(b"HTTP/1.1 103")
    assert http1.relayed(early, _asked(version="1.0"), [], chunked=False, keep=False) == b""
