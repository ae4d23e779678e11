import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from atoll.errors import FileNotFoundError as AtollFileNotFoundError
from atoll.workers import Request, Response
from atoll.workers.app import WorkerApp
from atoll.workers.entry import Context, Fetch


async def ask(
    fetch: Fetch, *, method: str = "GET", body: Iterable[bytes] = (b"",), dev: bool = False
) -> list[dict[str, Any]]:
    """Send one request through the ASGI interface and return the messages of its answer."""
    chunks = list(body)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not chunks:
            return {"type": "http.disconnect"}
        chunk = chunks.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "scheme": "http",
        "path": "/a b",
        "raw_path": b"/a%20b",
        "query_string": b"q=1",
        "headers": [(b"host", b"h:1"), (b"x-y", b"\xe9")],
        "server": ("127.0.0.1", 1),
    }
    await WorkerApp(fetch, Context(), dev=dev)(scope, receive, send)
    return sent


def body(sent: list[dict[str, Any]]) -> bytes:
    return b"".join(message.get("body", b"") for message in sent)


async def test_url_headers_and_streamed_body_arrive_unchanged() -> None:
    async def fetch(request: Request) -> Response:
        return Response(f"{request.url} {request.headers['x-y']} {await request.text()}")

    sent = await ask(fetch, method="POST", body=[b"ab", b"", b"cd"])
    assert body(sent).decode() == "http://h:1/a%20b?q=1 é abcd"


async def test_a_streaming_body_is_sent_chunk_by_chunk() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"

    async def fetch(_: Request) -> Response:
        return Response(chunks(), headers={"set-cookie": "a"})

    sent = await ask(fetch)
    assert [m.get("body") for m in sent[1:]] == [b"1", b"2", b""]
    assert sent[0]["headers"] == [(b"set-cookie", b"a")]


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_answers_that_have_no_body_get_none(method: str, status: int) -> None:
    async def fetch(_: Request) -> Response:
        return Response("x", status)

    assert body(await ask(fetch, method=method)) == b""


async def test_an_error_shows_its_traceback_in_dev_only() -> None:
    async def fetch(_: Request) -> Response:
        raise AtollFileNotFoundError("secret path")

    shown = await ask(fetch, dev=True)
    assert shown[0]["status"] == 500
    assert b"Traceback" in body(shown)
    hidden = body(await ask(fetch))
    assert b"FILE_NOT_FOUND" in hidden
    assert b"secret path" not in hidden


async def test_returning_no_response_is_an_error_that_says_so() -> None:
    async def fetch(_: Request) -> Any:
        return "text"

    assert b"fetch returned str" in body(await ask(fetch, dev=True))


async def test_a_cut_request_body_is_an_error_not_a_short_body() -> None:
    async def fetch(request: Request) -> Response:
        return Response(await request.text())

    sent: list[dict[str, Any]] = []
    messages = [{"type": "http.request", "body": b"half", "more_body": True}]

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": "/",
        "query_string": b"",
        "headers": [],
    }
    await WorkerApp(fetch, Context(), dev=True)(scope, receive, send)
    assert sent[0]["status"] == 500


async def test_a_request_for_a_websocket_has_no_body_to_wait_for() -> None:
    read: list[str] = []

    async def fetch(request: Request) -> Response:
        read.append(await request.text())
        return Response("no", 403)

    async def receive() -> dict[str, Any]:
        if opened:
            await asyncio.get_running_loop().create_future()
        opened.append(True)
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    opened: list[bool] = []
    sent: list[dict[str, Any]] = []
    scope = {"type": "websocket", "scheme": "ws", "path": "/", "query_string": b"", "headers": []}
    async with asyncio.timeout(5):
        await WorkerApp(fetch, Context(), dev=False)(scope, receive, send)
    assert (read, sent[0]["reason"]) == ([""], "403")
