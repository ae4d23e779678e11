"""Heads of HTTP/1.1 from both sides: however they are cut, one meaning or one typed error."""

from hypothesis import given
from hypothesis import strategies as st

from atoll.network.gateway import messages
from atoll.proxy import route
from atoll.proxy.route import Visitor
from atoll.wire import http1
from atoll.wire.http1 import Data, Event, Malformed, Request, RequestReader, ResponseReader, Rest
from fuzz.examples import examples

_NAMES = st.sampled_from(
    [b"Host", b"Connection", b"Upgrade", b"Content-Length", b"Transfer-Encoding", b"TE", b"Expect",
     b"X-Forwarded-For", b"X-Forwarded-Proto", b"Trailer", b"Set-Cookie", b"Cookie", b"X"]
) | st.binary(max_size=4)  # fmt: skip
_FORWARDED = st.tuples(
    st.sampled_from([b"X-Forwarded-For", b"X-Forwarded-Proto"]),
    st.sampled_from([b"1.2.3.4, ::1", b"https", b"\xff", b", ,"]),
)
_VALUES = st.sampled_from(
    [b"8080-box-tok.localhost", b"h:99999", b"[::1]", b"upgrade", b"close, host", b"websocket",
     b"0", b"3", b"99999999999999999999", b"-1", b"+3", b"chunked", b"gzip, chunked", b"trailers",
     b"1.2.3.4, ::1", b"https", b"a=b; Domain=localhost", b"100-continue", b"\xff\xfe"]
) | st.binary(max_size=6)  # fmt: skip
_LINES = st.lists((st.tuples(_NAMES, _VALUES) | _FORWARDED).map(b": ".join), max_size=6)
_BODY = st.sampled_from(
    [b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"ffffffffffffffffff\r\n",
     b"1;" + b"x" * 40 + b"\r\na\r\n0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"]
) | st.binary(max_size=20)  # fmt: skip
_ASKING = st.builds(
    lambda method, target, version: b" ".join([method, target, version]),
    st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS", b"CONNECT", b"PRI", b"get"]),
    st.sampled_from([b"/", b"/a?b#c", b"*", b"http://h/x", b"http://[::1", b"//h", b"h:1"])
    | st.binary(max_size=8),
    st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1.1 "]),
)
_ANSWERING = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.0 204 ", b"HTTP/1.1 101 X", b"HTTP/1.1 100 Continue",
     b"HTTP/1.1 304 ", b"HTTP/1.1 999 X", b"HTTP/1.1 000 X", b"HTTP/1.1 200", b"HTTP/1.1 99999 X"]
)  # fmt: skip


def _messages(first: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    usual = st.builds(
        lambda line, lines, body: b"\r\n".join([line, b"Host: h", *lines, b"", body]),
        first, _LINES, _BODY,
    )  # fmt: skip
    return st.lists(usual | st.binary(max_size=40), min_size=1, max_size=2).map(b"".join)


_MILD = st.lists(_FORWARDED.map(b": ".join), min_size=1, max_size=3).map(
    lambda lines: b"\r\n".join([b"GET / HTTP/1.1", b"Host: h", *lines, b"", b""])
)
"""Nothing but what a proxy before us tells: hardly any other message gets as far as that."""


def _told(reader: RequestReader | ResponseReader, pieces: list[bytes]) -> list[Event] | None:
    """Return what *pieces* mean, bodies in one; None: they are refused."""
    found = list[Event]()
    for number, piece in enumerate(pieces):
        try:
            events = reader.feed(piece)
        except Malformed as error:
            assert 400 <= error.status <= 599
            return None
        for event in events:
            if isinstance(event, Data) and found and isinstance(found[-1], Data):
                found[-1] = Data(found[-1].data + event.data)
            elif isinstance(event, Rest):
                return [*found, Rest(event.data + b"".join(pieces[number + 1 :]))]
            else:
                found.append(event)
    return found


def _cut(stream: bytes, step: int) -> list[bytes]:
    return [stream[at : at + step] for at in range(0, len(stream), step)]


@examples(250)
@given(_messages(_ASKING), st.integers(1, 9))
def test_a_request_means_the_same_however_it_is_cut(stream: bytes, step: int) -> None:
    whole = _told(RequestReader(), [stream])
    assert _told(RequestReader(), _cut(stream, step)) == whole


@examples(250)
@given(_messages(_ANSWERING), st.integers(1, 9), st.sampled_from([b"GET", b"HEAD"]))
def test_an_answer_means_the_same_however_it_is_cut(
    stream: bytes, step: int, method: bytes
) -> None:
    one, other = ResponseReader(), ResponseReader()
    one.expect(method)
    other.expect(method)
    assert _told(one, [stream]) == _told(other, _cut(stream, step))


@examples(250)
@given(_messages(_ASKING) | _MILD)
def test_every_request_that_is_understood_can_be_written_anew(stream: bytes) -> None:
    for event in _told(RequestReader(), [stream]) or []:
        if not isinstance(event, Request):
            continue
        named = route.authority(event)
        visitor = route.visitor_of(Visitor("127.0.0.1"), event, lambda _: True)
        fields = route.request_fields(event, visitor, 8080, "box", named or b"h")
        _one_head(http1.write_request(event.method, route.path_of(event.target), fields))
        route.target_of(named, None)
        _proxied(event)


def _proxied(request: Request) -> None:
    """Make of *request* what leaves through the gateway of a sandbox."""
    try:
        target = messages.path(request)
    except Malformed:
        return
    fields = messages.framed(messages.request_fields(request, "proved.test"), request)
    _one_head(http1.write_request(request.method, target, fields))


def _one_head(head: bytes) -> None:
    assert head.count(b"\r\n\r\n") == 1
    assert head.endswith(b"\r\n\r\n")
    assert b"\n" not in head.replace(b"\r\n", b"")


_CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
_ENDLESS = st.sampled_from(
    [
        b"GET /",
        b"GET / HTTP/1.1\r\nX: ",
        b"GET / HTTP/1.1\r\n",
        _CHUNKED + b"1;",
        _CHUNKED + b"0\r\n",
    ]
)


@examples(20)
@given(_ENDLESS, st.sampled_from([b"x", b"x: y\r\n", b"x" * 50]), st.integers(512, 9_000))
def test_a_head_that_never_ends_is_refused_at_the_bound(
    begin: bytes, more: bytes, size: int
) -> None:
    reader, fed = RequestReader(), 0
    reader.feed(begin)
    piece = more * (size // len(more) + 1)
    while fed <= http1.MAX_HEAD + len(piece):
        try:
            reader.feed(piece)
        except Malformed:
            return
        fed += len(piece)
    raise AssertionError(f"{fed} bytes are kept")
