"""Raw bytes: no client library sends what these tests must send."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from atoll.engine.engine import Engine
from atoll.server import answer, protocol, sockets
from atoll.server.main import Served
from integration.server.conftest import BOX

GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
POST = f"POST {BOX}/start HTTP/1.1\r\nhost: localhost\r\n".encode()


class Raw:
    """Connections to the unix socket of an engine."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def ask(self, *parts: bytes, pause: float = 0.0) -> tuple[int, dict[str, Any], bytes]:
        """Send *parts*; return status, body and what came until the connection ended."""
        reader, writer = await asyncio.open_unix_connection(self._path)
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        async with asyncio.timeout(5):
            raw = await reader.read()
        writer.close()
        head, _, body = raw.partition(b"\r\n\r\n")
        return (int(head.split()[1]), json.loads(body or b"{}"), raw) if raw else (0, {}, raw)


@pytest.fixture
async def raw(engine: Engine) -> AsyncIterator[Raw]:
    async with AsyncExitStack() as stack:
        served = Served(engine, stack)
        yield Raw((await served.listen(local=False))["socket"])
        await served.stop()


@pytest.mark.parametrize(
    "parts",
    [
        [GET + b"x: " + b"a" * 20_000 + b"\r\n\r\n"],
        [GET + b"".join(b"x%d: a\r\n" % n for n in range(3_000)) + b"\r\n"],
        [GET + b"x: ", *[b"a" * 4_000] * 5],
        [b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n"],
    ],
    ids=["one value", "many headers", "in parts, without an end", "path"],
)
async def test_a_head_over_the_limit_is_refused(raw: Raw, parts: list[bytes]) -> None:
    status, body, _ = await raw.ask(*parts, pause=0.01)
    assert (status, body["httpStatus"], body["code"]) == (431, 431, "VALIDATION_FAILED")
    assert body["context"] == {"limit": protocol.MAX_HEAD}


async def test_a_large_head_below_the_limit_is_answered_however_it_is_cut(raw: Raw) -> None:
    head = GET + b"connection: close\r\nx: " + b"a" * 15_000 + b"\r\n\r\n"
    parts = [head[at : at + 1_500] for at in range(0, len(head), 1_500)]
    assert (await raw.ask(*parts, pause=0.01))[:2] == (200, {"ok": True})


async def test_trailers_without_an_end_are_cut(raw: Raw) -> None:
    """The parser keeps them for a request that was answered long ago."""
    start = GET + b"transfer-encoding: chunked\r\n\r\n0\r\nx: "
    _, _, sent = await raw.ask(start, *[b"a" * 4_000] * 5, pause=0.01)
    assert sent.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("parts", [[], [b"G"], [GET], [GET + b"\r\n", b"GET"]])
async def test_a_head_that_does_not_end_is_cut(
    raw: Raw, monkeypatch: pytest.MonkeyPatch, parts: list[bytes]
) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIME", 0.2)
    status, _, _ = await raw.ask(*parts, pause=0.05)
    assert status in {0, 200}


async def test_a_json_body_that_does_not_end_is_refused_and_cut(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "JSON_TIME", 0.1)
    monkeypatch.setattr(protocol, "HEAD_TIME", 0.2)
    status, body, _ = await raw.ask(POST + b"content-length: 9\r\n\r\n{")
    assert (status, body["code"]) == (408, "TIMEOUT")


@pytest.mark.parametrize("text", [b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01"])
async def test_what_is_not_http_is_refused_with_an_envelope(raw: Raw, text: bytes) -> None:
    status, body, sent = await raw.ask(text)
    assert (status, body["code"]) == (400, "VALIDATION_FAILED")
    assert body["requestId"].encode() in sent.partition(b"\r\n\r\n")[0]


@pytest.mark.parametrize("method", [b"OPTIONS", b"TRACE", b"PATCH"])
async def test_other_methods_get_an_envelope(raw: Raw, method: bytes) -> None:
    status, body, _ = await raw.ask(
        method + b" /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    assert (status, body["code"]) == (405, "ROUTE_NOT_FOUND")


async def test_head_has_no_body(raw: Raw) -> None:
    _, _, sent = await raw.ask(
        b"HEAD /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    assert sent.startswith(b"HTTP/1.1 405")
    assert sent.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("kind", [b"text/plain", b"application/x-www-form-urlencoded", b""])
async def test_a_body_of_another_kind_is_a_typed_error(raw: Raw, kind: bytes) -> None:
    head = b"POST %s/exec HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" % BOX.encode()
    status, body, _ = await raw.ask(
        head + b"content-type: " + kind + b"\r\ncontent-length: 7\r\n\r\ncmd=ls\n"
    )
    assert (status, body["code"]) == (400, "VALIDATION_FAILED")


async def test_one_tcp_connection_too_many_is_refused_and_the_unix_socket_still_answers(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "MAX_TCP", 2)
    async with AsyncExitStack() as stack:
        served = Served(engine, stack)
        hello = await served.listen(local=False)
        url = urlsplit(hello["url"])
        held = [await asyncio.open_connection(url.hostname, url.port) for _ in range(2)]
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        async with asyncio.timeout(5):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert (head.split()[1], json.loads(body)["code"]) == (b"503", "CONTAINER_UNAVAILABLE")
        one = GET + b"connection: close\r\n\r\n"
        assert (await Raw(hello["socket"]).ask(one))[0] == 200
        for _, writer in held:
            writer.close()
        await asyncio.sleep(0.05)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(one)
        async with asyncio.timeout(5):
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        await served.stop()
