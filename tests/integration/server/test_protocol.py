"""Raw bytes: no client library sends what these tests must send."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from atoll.engine.engine import Engine
from atoll.server import answer, protocol, sockets
from atoll.server.main import Served
from atoll.wire import frames
from atoll.wire.frames import Kind
from atoll.wire.operation import MAX_HEAD
from integration.engine.scripted import Peer, World
from integration.server.conftest import BOX

GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
POST = f"POST {BOX}/start HTTP/1.1\r\nhost: localhost\r\n".encode()


class Raw:
    """Connections to the unix socket of an engine."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def ask(self, *parts: bytes, pause: float = 0.0) -> tuple[int, dict[str, Any], bytes]:
        """Send *parts*; return status, body and what came until the connection ended."""
        reader, writer = await self._sent(parts, pause)
        return await self._told(reader, writer)

    async def ask_and_close(
        self, *parts: bytes, after: asyncio.Event | None = None
    ) -> tuple[int, dict[str, Any], bytes]:
        """As `ask`, by a caller that then closes its sending side, *after* something if given."""
        reader, writer = await self._sent(parts, 0.0)
        async with asyncio.timeout(10):
            await (after.wait() if after else asyncio.sleep(0))
        writer.write_eof()
        return await self._told(reader, writer)

    async def _sent(
        self, parts: Sequence[bytes], pause: float
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(self._path)
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        return reader, writer

    async def _told(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[int, dict[str, Any], bytes]:
        async with asyncio.timeout(5):
            raw = await reader.read()
        writer.close()
        head, _, body = raw.partition(b"\r\n\r\n")
        body = body.partition(b"HTTP/1.1 ")[0]  # of the first answer
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
    assert body["context"] == {"limit": MAX_HEAD}


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


class Tcp:
    """Connections to the TCP listener of an engine that allows two."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)

    async def open(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        writer.write(sent)
        return reader, writer


@pytest.fixture
async def two(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tcp]:
    monkeypatch.setattr(sockets, "MAX_TCP", 2)
    async with AsyncExitStack() as stack:
        served = Served(engine, stack)
        yield Tcp((await served.listen(local=False))["url"])
        await served.stop()


async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    async with asyncio.timeout(10):
        try:
            found = await reader.read()
        except ConnectionResetError:
            found = b""
    writer.close()
    return found


async def test_of_too_many_connections_the_one_that_waited_longest_makes_room(two: Tcp) -> None:
    """Whoever opens connections and says nothing keeps nobody else out."""
    oldest, later = await two.open(b"GET /he"), await two.open()
    found = await end(*await two.open(GET + b"connection: close\r\n\r\n"))
    assert found.startswith(b"HTTP/1.1 200")
    assert await end(*oldest) == b""
    later[1].write(GET + b"connection: close\r\n\r\n")
    assert (await end(*later)).startswith(b"HTTP/1.1 200")


async def test_connections_with_a_request_are_not_ended_for_another(two: Tcp, world: World) -> None:
    post = b"POST %s/exec HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{" % BOX.encode()
    busy = [await two.open(post) for _ in range(2)]
    await asyncio.sleep(0.1)
    head, _, body = (await end(*await two.open(GET + b"\r\n"))).partition(b"\r\n\r\n")
    assert (head.split()[1], json.loads(body)["code"]) == (b"503", "CONTAINER_UNAVAILABLE")
    for _, writer in busy:
        writer.close()


CHUNKED = b"transfer-encoding: chunked\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 4\r\n" + CHUNKED,
        CHUNKED + b"content-length: 4\r\n",
        b"content-length: 4\r\ncontent-length: 5\r\n",
        b"content-length: 4\r\ncontent-length: 4\r\n",
        b"content-length: 4, 4\r\n",
        b"content-length: +4\r\n",
        b"content-length: -4\r\n",
        b"content-length: 0x4\r\n",
        b"content-length: \r\n",
        b"content-length : 4\r\n",
        b"transfer-encoding: xchunked\r\n",
        b"transfer-encoding: identity, chunked\r\n",
        b"transfer-encoding: chunked, identity\r\n",
        b"transfer-encoding: gzip, chunked\r\n",
        b"transfer-encoding:\x0bchunked\r\n",
        b"transfer-encoding:\r\n chunked\r\n",
        CHUNKED + CHUNKED,
        b"x: a\r\n b\r\n",
        b"x: a\rcontent-length: 4\r\n",
        b"x: a\ncontent-length: 4\r\n",
        b"x: a\0b\r\n",
        b"host: evil.example\r\n",
        b": empty\r\n",
        b"x y: 1\r\n",
    ],
)
async def test_a_head_that_two_servers_could_read_differently_is_refused(
    raw: Raw, head: bytes
) -> None:
    """What follows would be a body to one of them and a request to the other."""
    hidden = b"GET /v2/version HTTP/1.1\r\nhost: localhost\r\n\r\n"
    first = b"POST /health HTTP/1.1\r\nhost: localhost\r\n" + head + b"\r\n"
    status, _, sent = await raw.ask(first + b"0\r\n\r\n" + hidden)
    assert status == 400
    assert sent.count(b"HTTP/1.1 ") == 1
    assert b"engineId" not in sent


@pytest.mark.parametrize(
    "chunks",
    [
        b"0x1\r\na\r\n0\r\n\r\n",
        b"1 \r\na\r\n0\r\n\r\n",
        b"1\na\r\n0\r\n\r\n",
        b"1;a\nb\r\na\r\n0\r\n\r\n",
        b"1\r\naXX0\r\n\r\n",
        b"-1\r\na\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\na\r\n0\r\n\r\n",
    ],
)
async def test_a_chunk_that_two_servers_could_read_differently_ends_the_connection(
    raw: Raw, chunks: bytes
) -> None:
    hidden = b"GET /v2/version HTTP/1.1\r\nhost: localhost\r\n\r\n"
    head = f"PUT {BOX} HTTP/1.1\r\nhost: localhost\r\n".encode() + CHUNKED + b"\r\n"
    status, body, sent = await raw.ask(head + chunks + hidden)
    assert (status, body["code"]) == (400, "VALIDATION_FAILED")
    assert sent.count(b"HTTP/1.1 ") == 1
    assert b"engineId" not in sent


@pytest.mark.parametrize("pause", [0.0, 0.05], ids=["at once", "while it is read"])
@pytest.mark.parametrize("kind", ["application/json", frames.CONTENT_TYPE])
async def test_a_body_that_turns_out_malformed_is_answered_once(
    raw: Raw, kind: str, pause: float
) -> None:
    """Its request is under way by then, and must neither answer as well nor hold the answer up."""
    head = f"POST {BOX}/exec HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n"
    begun = head.encode() + CHUNKED + b"\r\n"
    status, body, sent = await raw.ask(begun, b"1\r\n{\r\n", b"zz\r\n", pause=pause)
    assert (status, body["message"]) == (400, "the request is not HTTP/1.1")
    assert sent.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "parts",
    [
        [GET],
        [POST + b"content-length: 9\r\n\r\n{"],
        [f"PUT {BOX}/files?path=/tmp/x HTTP/1.1\r\nhost: localhost\r\n".encode(),
         b"content-length: 9\r\n\r\nhell"],
        [b"G"],
    ],
    ids=["in a head", "in a body", "in an upload", "in a word"],
)  # fmt: skip
async def test_who_closes_its_side_before_the_end_is_told_and_let_go(
    raw: Raw, parts: list[bytes]
) -> None:
    status, body, _ = await raw.ask_and_close(*parts)
    assert (status, body["code"]) == (400, "VALIDATION_FAILED")


async def test_who_closes_its_side_while_its_command_runs_is_told_and_its_command_ends(
    raw: Raw, world: World
) -> None:
    """It looks like one that has left, whose command must not go on without it."""
    runs, ended = asyncio.Event(), asyncio.Event()

    async def runs_on(peer: Peer, _: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 1})
        runs.set()
        try:
            while (await peer.next()).kind != Kind.CANCEL:
                pass
        finally:
            ended.set()

    world.runtime.scripts["exec"] = runs_on
    command = b'{"command": "sleep 60"}'
    head = f"POST {BOX}/exec HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    length = b"content-length: %d\r\n\r\n" % len(command)
    status, body, _ = await raw.ask_and_close(head.encode() + length + command, after=runs)
    assert (status, body["code"]) == (400, "VALIDATION_FAILED")
    async with asyncio.timeout(10):
        await ended.wait()


async def test_who_closes_its_side_after_the_answer_gets_nothing_more(raw: Raw) -> None:
    _, body, sent = await raw.ask(GET + b"connection: close\r\n\r\n")
    assert (body, sent.count(b"HTTP/1.1 ")) == ({"ok": True}, 1)


@pytest.mark.parametrize(
    "line",
    [b"GET /health HTTP/1.0\r\nhost: a\r\n" + CHUNKED, b"GET /health HTTP/1.1\r\n",
     b"GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\n",
     b"CONNECT evil.example:80 HTTP/1.1\r\nhost: evil.example:80\r\n",
     b"PRI * HTTP/2.0\r\n\r\nSM\r\n"],
)  # fmt: skip
async def test_other_kinds_of_requests_are_refused(raw: Raw, line: bytes) -> None:
    assert (await raw.ask(line + b"\r\n"))[0] == 400


async def test_requests_sent_ahead_are_answered_in_order(raw: Raw) -> None:
    ahead = GET + b"\r\nGET /v2/version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    _, _, sent = await raw.ask(ahead)
    assert sent.index(b'{"ok":true}') < sent.index(b"engineId")


@pytest.mark.parametrize("kind", ["file", "stdin"])
async def test_an_upload_that_stands_still_is_given_up(
    raw: Raw, monkeypatch: pytest.MonkeyPatch, engine: Engine, kind: str
) -> None:
    quick = msgspec.structs.replace(engine.settings.server, idle_timeout=0.2)
    engine.settings = msgspec.structs.replace(engine.settings, server=quick)
    monkeypatch.setattr(protocol, "HEAD_TIME", 0.2)
    path = f"{BOX}/files?path=/tmp/x" if kind == "file" else f"{BOX}/exec"
    content = b"application/octet-stream" if kind == "file" else frames.CONTENT_TYPE.encode()
    method = b"PUT" if kind == "file" else b"POST"
    head = b"%s %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: %s\r\ncontent-length: 99\r\n\r\n"
    status, body, _ = await raw.ask(head % (method, path.encode(), content) + b"\x01")
    assert (status, body["code"]) == (408, "TIMEOUT")


async def test_an_answer_nobody_reads_is_given_up(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On TCP: by the unix socket the owner may pause as long as he likes."""
    quick = msgspec.structs.replace(engine.settings.server, stall_timeout=0.3)
    engine.settings = msgspec.structs.replace(engine.settings, server=quick)
    ended = asyncio.Event()

    async def flood(peer: Peer, _: dict[str, Any]) -> None:
        try:
            await peer.send(Kind.STARTED, {"pid": 1})
            for at in range(1_000):
                await peer.raw(frames.encode_output(Kind.STDOUT, at, at << 16, bytes(1 << 16)))
        finally:
            ended.set()

    world.runtime.scripts["exec"] = flood
    async with AsyncExitStack() as stack:
        served = Served(engine, stack)
        tcp = Tcp((await served.listen(local=False))["url"])
        body = b'{"command": "yes"}'
        head = f"POST {BOX}/exec HTTP/1.1\r\nhost: localhost\r\naccept: {frames.CONTENT_TYPE}\r\n"
        reader, writer = await tcp.open(
            head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
        )
        async with asyncio.timeout(20):
            await ended.wait()
        await end(reader, writer)
        await served.stop()
