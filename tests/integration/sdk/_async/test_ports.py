"""Ports, raw connections, HTTP and WebSockets to services, by way of a real engine."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

import atoll
from atoll.errors import ServiceNotRespondingError, TimeoutError, ValidationFailedError
from integration.services import Here, running


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with running(tmp_path_factory.mktemp("ports") / "state") as found:
        yield found


@pytest.fixture
async def sandbox(here: Here) -> AsyncIterator[atoll.Sandbox]:
    async with atoll.connect(here.url) as env:
        yield atoll.get_sandbox(env.Sandbox, "box")


async def test_a_request_has_what_was_asked(sandbox: atoll.Sandbox, here: Here) -> None:
    answer = await sandbox.fetch(
        f"http://localhost:{here.port}/a?b=c", method="put", headers={"X-A": "1"}, body="text"
    )
    told = await answer.json()
    assert (told["method"], told["path"], told["query"], told["size"]) == ("PUT", "/a", "b=c", 4)
    headers = dict(told["headers"])
    assert headers["host"] == f"localhost:{here.port}"
    assert (headers["x-a"], headers["content-length"]) == ("1", "4")
    assert answer.headers["content-length"]


async def test_an_answer_is_read_piece_by_piece_or_not_at_all(
    sandbox: atoll.Sandbox, here: Here
) -> None:
    answer = await sandbox.fetch("/stream", port=here.port)
    assert answer.headers["set-cookie"] == "a=1, b=2"
    assert [value for name, value in answer.fields if name == "set-cookie"] == ["a=1", "b=2"]
    assert b"".join([chunk async for chunk in answer.body]) == b"piece 0\npiece 1\npiece 2\n"
    async with await sandbox.fetch("/stream", port=here.port) as unread:
        assert unread.ok


async def test_what_is_no_request_is_refused_before_anything_is_sent(
    sandbox: atoll.Sandbox,
) -> None:
    for request in ("no-path", "ftp://x/y", "/a b", "/ü"):
        with pytest.raises(ValidationFailedError):
            await sandbox.fetch(request, port=8080)
    with pytest.raises(ValidationFailedError, match="port"):
        await sandbox.fetch("/")


async def test_a_service_that_is_silent_or_speaks_no_http(sandbox: atoll.Sandbox) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/cut" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        elif b"/silent" in head:
            await reader.read()
        else:
            writer.write(b"220 smtp\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TimeoutError):
            await sandbox.fetch("/silent", port=port, timeout=0.2)
        with pytest.raises(ServiceNotRespondingError):
            await sandbox.fetch("/", port=port)
        cut = await sandbox.fetch("/cut", port=port)
        with pytest.raises(ServiceNotRespondingError):
            await cut.bytes()


async def test_links_and_logs_of_previews(sandbox: atoll.Sandbox, here: Here) -> None:
    exposed = await sandbox.expose_port(here.port, auth="cookie")
    assert exposed.secret
    link = await sandbox.preview_link(here.port, expires="5m")
    assert link.url.startswith(exposed.url)
    assert await sandbox.preview_log(here.port) == []
    assert await sandbox.tunnels.list() == []
    await sandbox.tunnels.destroy(here.port)
    await sandbox.unexpose_port(here.port)
    with pytest.raises(atoll.errors.PortNotExposedError):
        await sandbox.preview_link(here.port)
