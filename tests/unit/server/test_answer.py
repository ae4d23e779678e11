import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from atoll.errors import FileTooLargeError, ValidationFailedError
from atoll.server import answer
from atoll.server.answer import Stream
from atoll.wire.ops import Attach, ListSandboxes
from atoll.wire.sandbox import SandboxOptions
from unit.server.calling import call


class Connection:
    """What the server would be: a caller that stays until `leave`."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self._left = asyncio.Event()

    def leave(self) -> None:
        self._left.set()

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(m["body"] for m in self.sent[1:])


async def test_an_answer_comes_piece_by_piece() -> None:
    async def run(stream: Stream) -> None:
        await stream.start(201, "text/plain", {"x-a": "é"})
        await stream.write(b"")
        await stream.write(b"a")
        await stream.write(b"b")
        await stream.end()

    connection = Connection()
    await Stream(run)({}, connection.receive, connection.send)
    assert connection.sent[0]["status"] == 201
    assert (b"x-a", "é".encode("latin-1")) in connection.sent[0]["headers"]
    assert connection.body == b"ab"
    assert [m.get("more_body", False) for m in connection.sent[1:]] == [True, True, False]


async def test_a_wait_ends_with_its_answer_or_its_caller() -> None:
    connection = Connection()
    assert await answer.attended(connection.receive, asyncio.sleep(0, "answer")) == "answer"
    waiting = asyncio.create_task(answer.attended(connection.receive, asyncio.sleep(60)))
    await asyncio.sleep(0)
    connection.leave()
    with pytest.raises(ClientDisconnect):
        await waiting


async def test_a_caller_who_leaves_ends_the_work() -> None:
    ended = asyncio.Event()

    async def run(stream: Stream) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()

    connection = Connection()
    asyncio.get_running_loop().call_later(0.01, connection.leave)
    await Stream(run)({}, connection.receive, connection.send)
    assert ended.is_set()
    assert connection.sent == []


async def test_what_the_work_raises_is_raised() -> None:
    async def run(stream: Stream) -> None:
        raise ValidationFailedError("no")

    connection = Connection()
    with pytest.raises(ValidationFailedError):
        await Stream(run)({}, connection.receive, connection.send)


async def test_a_server_that_stops_ends_the_work_and_cuts_the_answer() -> None:
    ended = asyncio.Event()

    async def run(stream: Stream) -> None:
        try:
            await stream.start(200, "text/plain")
            await asyncio.sleep(30)
        finally:
            ended.set()

    connection = Connection()
    serving = asyncio.create_task(Stream(run)({}, connection.receive, connection.send))
    await asyncio.sleep(0.01)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert ended.is_set()
    assert len(connection.sent) == 1


def request(body: bytes = b"", query: str = "") -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    scope = {"type": "http", "headers": [], "query_string": query.encode(), "call": call()}
    return Request(scope, receive)


async def test_bodies_have_a_limit() -> None:
    assert await answer.read_json(request(b"abc"), 3) == b"abc"
    with pytest.raises(FileTooLargeError):
        await answer.read_json(request(b"abcd"), 3)


def test_an_empty_body_is_an_empty_request() -> None:
    assert answer.decode(b"", SandboxOptions) == SandboxOptions()


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"nope": 1}', b"[" * 100_000, b"\xff"])
def test_what_is_not_a_request_is_refused(body: bytes) -> None:
    with pytest.raises(ValidationFailedError):
        answer.decode(body, SandboxOptions)


def test_queries_are_typed() -> None:
    found: Any = answer.decode_query(request(query="limit=7&labels=a%3Db"), ListSandboxes)
    assert found == ListSandboxes(limit=7, labels="a=b")
    assert answer.decode_query(request(query="fromOffset=9"), Attach).from_offset == 9


@pytest.mark.parametrize("query", ["limit=x", "nope=1", "limit=1&limit=2"])
def test_wrong_queries_are_refused(query: str) -> None:
    with pytest.raises(ValidationFailedError):
        answer.decode_query(request(query=query), ListSandboxes)


def test_results_fit_into_headers() -> None:
    text = answer.ascii_json(SandboxOptions(image="ü\n€"))
    assert text.isascii()
    assert "\n" not in text
