"""Relaying with a visitor and a service of the test."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from atoll.errors import ServiceNotRespondingError
from atoll.sdk._async.websocket import WebSocket
from atoll.workers import Response, websocket


class Service:
    """What `relay` uses of a `WebSocket`."""

    subprotocol = "chat"
    close_reason = "bye"

    def __init__(self, messages: Sequence[str | bytes], code: int | None) -> None:
        self.headers = {"set-cookie": "a=1"}
        self._messages = list(messages)
        self.close_code = code
        self.sent: list[Any] = []
        self.closed: list[Any] = []

    def __aiter__(self) -> "Service":
        return self

    async def __anext__(self) -> str | bytes:
        if self._messages:
            return self._messages.pop(0)
        if self.close_code is None:
            raise ServiceNotRespondingError("gone")
        raise StopAsyncIteration

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def close(self, *how: Any) -> None:
        self.closed.append(how)


async def relayed(service: Service, *received: dict[str, Any]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    waiting = list(received)

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)

        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await websocket.relay(cast("WebSocket", service), receive, send)
    return sent


async def test_messages_keep_their_kind_and_the_close_its_code() -> None:
    sent = await relayed(Service(["text", b"bytes"], 4001))
    assert sent[0] == {
        "type": "websocket.accept", "subprotocol": "chat", "headers": [(b"set-cookie", b"a=1")],
    }  # fmt: skip
    assert sent[1:] == [
        {"type": "websocket.send", "text": "text"},
        {"type": "websocket.send", "bytes": b"bytes"},
        {"type": "websocket.close", "code": 4001, "reason": "bye"},
    ]


async def test_a_close_without_a_code_is_an_ordinary_one_and_a_loss_is_none() -> None:
    for code, told in ((1005, 1000), (1006, 1011), (None, 1011)):
        assert (await relayed(Service([], code)))[-1]["code"] == told


async def test_what_the_visitor_says_reaches_the_service() -> None:
    class Silent(Service):
        async def __anext__(self) -> str | bytes:

            await asyncio.get_running_loop().create_future()
            raise AssertionError

    service = Silent([], None)
    await relayed(
        service,
        {"type": "websocket.receive", "text": "t"},
        {"type": "websocket.receive", "bytes": b"b"},
        {"type": "websocket.disconnect", "code": 1006},
    )
    assert service.sent == ["t", b"b"]
    assert service.closed == [(1000, "")]


async def test_a_service_that_does_not_answer_the_close_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Deaf(Service):
        async def __anext__(self) -> str | bytes:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        async def close(self, *how: Any) -> None:
            await super().close(*how)
            await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(websocket, "CLOSE_SECONDS", 0.01)
    service = Deaf([], None)
    async with asyncio.timeout(5):
        await relayed(service, {"type": "websocket.disconnect", "code": 4001, "reason": "bye"})
    assert service.closed == [(4001, "bye")]


@pytest.mark.parametrize("able", [True, False])
async def test_a_refusal_is_an_answer_where_the_server_can_send_one(able: bool) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"extensions": {"websocket.http.response": {}}} if able else {}
    await websocket.refuse(Response(b"no", 404, {"x": "y"}), scope, send)
    if able:
        assert [message["type"] for message in sent] == [
            "websocket.http.response.start", "websocket.http.response.body",
        ]  # fmt: skip
        assert (sent[0]["status"], sent[0]["headers"]) == (404, [(b"x", b"y")])
    else:
        assert sent == [{"type": "websocket.close", "code": 1008, "reason": "404"}]
