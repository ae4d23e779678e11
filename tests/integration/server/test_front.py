"""One listener for previews and the API, whatever way a request's bytes come."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_network

import pytest

from atoll.engine.engine import Engine
from atoll.engine.processes import ports as probes
from atoll.server import front
from atoll.server.main import Served
from atoll.wire.ports import ExposePort
from integration.engine.conftest import engine, opener, world
from integration.proxy.sites import Talk

__all__ = ["engine", "opener", "world"]


@pytest.fixture(autouse=True)
def _network_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted sandboxes have no network of their own."""

    async def namespace(_: object) -> None:
        return None

    monkeypatch.setattr(probes, "namespace", namespace)


API = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTHY = b'"ok":true}'


class Doors:
    """The unix listener of an engine, and the host of a preview."""

    def __init__(self, socket: str, host: str, served: Served) -> None:
        self.socket = socket
        self.host = host
        self.served = served
        self.writers: list[asyncio.StreamWriter] = []

    async def visit(self) -> Talk:
        reader, writer = await asyncio.open_unix_connection(self.socket)
        self.writers.append(writer)
        return Talk(reader, writer)

    def get(self, more: str = "") -> str:
        return f"GET / HTTP/1.1\r\nHost: {self.host}\r\n{more}\r\n"


@pytest.fixture
async def doors(engine: Engine) -> AsyncIterator[Doors]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\npreview")
        writer.close()

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(await asyncio.start_server(serve, "127.0.0.1", 0))
        port = server.sockets[0].getsockname()[1]
        served = Served(engine, stack)
        hello = await served.listen(local=False)
        box = engine.sandbox("N", "box")
        await engine.ports.expose(box, ExposePort(port=port))
        (exposure,) = engine.ports.listing(box)
        host = f"{port}-box-{exposure.token}.localhost"
        found = Doors(hello["socket"], host, served)
        yield found
        await served.stop()
        for writer in found.writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def test_requests_for_both_take_turns_on_one_connection(doors: Doors) -> None:
    talk = await doors.visit()
    for _ in range(3):
        talk.send(API)
        await talk.until(HEALTHY)
        talk.send(doors.get())
        await talk.until(b"preview")


async def test_a_head_may_come_byte_by_byte(doors: Doors) -> None:
    talk = await doors.visit()
    for text, end in ((API, HEALTHY), (doors.get(), b"preview"), (API, HEALTHY)):
        for char in text:
            talk.send(char)
            await asyncio.sleep(0)
        await talk.until(end)


async def test_requests_for_the_api_that_are_sent_ahead_are_answered(doors: Doors) -> None:
    talk = await doors.visit()
    talk.send(API * 3)
    for _ in range(3):
        await talk.until(HEALTHY)
    talk.send(doors.get() * 2)
    for _ in range(2):
        await talk.until(b"preview")


async def test_a_request_for_a_preview_behind_one_for_the_api_never_reaches_the_api(
    doors: Doors,
) -> None:
    talk = await doors.visit()
    talk.send(API + doors.get().replace("GET /", "GET /v2/version"))
    assert b'"engineId"' not in await talk.rest()


async def test_two_hosts_in_one_head_are_nobodys(doors: Doors) -> None:
    talk = await doors.visit()
    talk.send(doors.get("Host: localhost\r\n"))
    assert b"400 Bad Request" in await talk.rest()


async def test_a_site_that_is_full_says_so(doors: Doors) -> None:
    doors.served._site.limit = 0
    talk = await doors.visit()
    talk.send(doors.get())
    assert b"503 Service Unavailable" in await talk.rest()


async def test_visitors_are_cut_at_a_stop(doors: Doors) -> None:
    talk = await doors.visit()
    talk.send(doors.get())
    await talk.until(b"preview")
    await doors.served._site.close()
    assert await talk.cut()


def test_only_proxies_of_the_settings_are_trusted() -> None:
    assert front.trusting([])("")
    assert not front.trusting([])("10.0.0.1")
    trusted = front.trusting([ip_network("10.0.0.0/8")])
    assert trusted("10.0.0.1")
    assert trusted("::ffff:10.0.0.1")
    assert not trusted("11.0.0.1")
