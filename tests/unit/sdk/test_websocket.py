"""Both ends of a conversation without I/O: ours, and the library's server."""

import pytest
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from atoll.sdk._websocket import Conversation, WebSocketRefusedError


def opened() -> tuple[Conversation, ServerProtocol]:
    ours = Conversation("/x?y", [("Host", "localhost:80"), ("Cookie", "a=b")], ["one", "two"])
    server = ServerProtocol(subprotocols=[Subprotocol("two")], max_size=None)
    server.receive_data(ours.outgoing())
    (request,) = server.events_received()
    assert (request.path, request.headers["Cookie"]) == ("/x?y", "a=b")  # type: ignore[union-attr]
    assert request.headers.get_all("Host") == ["localhost:80"]  # type: ignore[union-attr]
    server.send_response(server.accept(request))  # type: ignore[arg-type]
    assert ours.feed(b"".join(server.data_to_send())) == []
    assert ours.open
    return ours, server


def test_messages_are_put_together_from_their_fragments() -> None:
    ours, server = opened()
    assert ours.subprotocol == "two"
    server.send_text(b"one ", fin=False)
    server.send_continuation(b"text", fin=True)
    server.send_ping(b"?")
    server.send_binary(b"\xff")
    assert ours.feed(b"".join(server.data_to_send())) == ["one text", b"\xff"]
    assert ours.outgoing()  # the pong


def test_what_is_sent_arrives() -> None:
    ours, server = opened()
    ours.send("ü")
    ours.send(b"\x00")
    ours.ping(b"p")
    server.receive_data(ours.outgoing())
    assert [event.data for event in server.events_received()] == [  # type: ignore[union-attr]
        "ü".encode(), b"\x00", b"p",
    ]  # fmt: skip


def test_a_close_has_its_code_and_reason_whoever_says_it() -> None:
    ours, server = opened()
    server.send_close(4001, "bye")
    ours.feed(b"".join(server.data_to_send()))
    ours.feed(b"")
    assert (ours.close_code, ours.close_reason) == (4001, "bye")
    ours, server = opened()
    ours.close(4002, "x")
    ours.close(4003, "too late")
    server.receive_data(ours.outgoing())
    ours.feed(b"".join(server.data_to_send()))
    ours.feed(b"")
    assert ours.close_code == 4002


def test_an_end_without_a_close_is_told_as_one() -> None:
    ours, _ = opened()
    assert ours.feed(b"") == []
    assert ours.close_code == 1006


@pytest.mark.parametrize(
    ("answer", "status"),
    [(b"HTTP/1.1 403 Forbidden\r\nX-A: b\r\nContent-Length: 2\r\n\r\nno", 403),
     (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200), (b"220 smtp\r\n\r\n", 502), (b"", 502)],
)  # fmt: skip
def test_a_refusal_has_the_services_answer(answer: bytes, status: int) -> None:
    ours = Conversation("/", [("Host", "h")], [])
    ours.outgoing()
    with pytest.raises(WebSocketRefusedError) as refused:
        ours.feed(answer)
    assert refused.value.status == status
    if status == 403:
        assert refused.value.body == b"no"
        assert ("x-a", "b") in refused.value.fields
