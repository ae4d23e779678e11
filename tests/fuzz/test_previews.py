"""What the proxy forwards is understood by another parser as it was understood here."""

import os

import h11
from hypothesis import example, given, settings
from hypothesis import strategies as st

from atoll.proxy import route
from atoll.proxy.route import Visitor
from atoll.wire import http1, preview
from atoll.wire.http1 import Data, End, Malformed, Request, RequestReader

EXAMPLES = int(os.environ.get("ATOLL_FUZZ_EXAMPLES", "300"))

NAME = b"8080-box-tok.localhost"
LINES = [
    b"Host: " + NAME, b"host: localhost", b"Content-Length: 3", b"Content-Length: 0",
    b"Content-Length: 3, 3", b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity",
    b"transfer-encoding:\tchunked ", b"Connection: close, Transfer-Encoding", b"Expect: 100-continue",
    b"Connection: Upgrade", b"Upgrade: websocket", b"Upgrade: h2c", b"TE: trailers", b"X: a\r\n b",
    b"X : y", b"X_Forwarded_For: z", b"Trailer: X", b"",
]  # fmt: skip
NAMES = r"[1-9][0-9]{3,4}-[a-zA-Z0-9](-?[a-zA-Z0-9]){0,9}-[a-z0-9_]{1,18}(\.[hH]?){0,2}\.?"
BODIES = [b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"3;x\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n",
          b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n", b"zz\r\n"]  # fmt: skip
FIRST = [b"GET / HTTP/1.1", b"POST /a?b HTTP/1.1", b"HEAD / HTTP/1.0", b"GET http://x/y HTTP/1.1",
         b"OPTIONS * HTTP/1.1"]  # fmt: skip

requests = st.builds(
    lambda first, lines, body, noise, at: _noisy(
        b"\r\n".join([first, *lines, b"", b""]) + body, noise, at
    ),
    st.sampled_from(FIRST),
    st.lists(st.sampled_from(LINES), max_size=6),
    st.sampled_from(BODIES),
    st.binary(max_size=2),
    st.integers(0, 200),
)


def _noisy(data: bytes, noise: bytes, at: int) -> bytes:
    return data[:at] + noise + data[at:]


def forwarded(data: bytes) -> tuple[int, bytes]:
    """Return how many requests there are in *data*, and what the server inside is sent."""
    sent, count, chunked = b"", 0, False
    for event in RequestReader().feed(data):
        if isinstance(event, Request):
            named = route.authority(event)
            fields = route.request_fields(event, Visitor("1.2.3.4"), 8080, "box", named or NAME)
            sent += http1.write_request(event.method, route.path_of(event.target), fields)
            count, chunked = count + 1, event.chunked
        elif isinstance(event, Data):
            sent += http1.write_chunk(event.data) if chunked else event.data
        elif isinstance(event, End) and chunked:
            sent += http1.write_last_chunk(route.response_fields(event.trailers, "h"))
    return count, sent


def understood(data: bytes) -> int:
    """Return how many requests another parser sees in *data*; fail where it sees nonsense."""
    count = 0
    while data:
        server = h11.Connection(h11.SERVER)
        server.receive_data(data)
        event = server.next_event()
        while isinstance(event, h11.Request | h11.Data):
            count += isinstance(event, h11.Request)
            event = server.next_event()
        if event is h11.NEED_DATA:
            return count
        data = server.trailing_data[0]
    return count


@settings(max_examples=EXAMPLES, deadline=None)
@given(requests)
@example(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + BODIES[3])
def test_both_sides_of_the_proxy_see_the_same_requests(data: bytes) -> None:
    try:
        count, sent = forwarded(data)
    except Malformed:
        return
    assert understood(sent) == count


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text(max_size=80) | st.from_regex(NAMES, fullmatch=True))
def test_a_name_is_read_in_one_way_or_not_at_all(host: str) -> None:
    found = preview.parse(host)
    if found:
        assert 1024 <= found.port <= 65535
        again = f"{found.port}-{found.sandbox_id}-{found.token}.{found.hostname}"
        assert again == host.lower().removesuffix(".")
        assert preview.parse(again) == found
        assert "-" not in found.token
