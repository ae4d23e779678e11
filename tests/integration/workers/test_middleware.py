"""Previews in an ASGI application of somebody else's, served by uvicorn."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import httpx2
import pytest
import websockets
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from websockets.asyncio.client import connect

import atoll
from atoll.workers import PreviewMiddleware, preview_app
from integration.services import Here, running, served


async def home(_: Request) -> PlainTextResponse:
    return PlainTextResponse("the application")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with running(tmp_path_factory.mktemp("middleware") / "state") as found:
        yield found


@pytest.fixture(scope="module")
def port(here: Here) -> Iterator[int]:
    """Port of an application with previews."""
    app = Starlette(routes=[Route("/", home)])
    app.add_middleware(PreviewMiddleware, env=atoll.connect(here.url))
    with served(app) as found:
        yield found


@pytest.fixture
async def host(here: Here, port: int) -> str:
    """Host of a preview by that application."""
    async with atoll.connect(here.url) as env:
        box = atoll.get_sandbox(env.Sandbox, "box")
        exposed = await box.expose_port(here.port, hostname=f"localhost:{port}", public=True)
        return urlsplit(exposed.url).netloc


@pytest.fixture
async def http(port: int) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as found:
        yield found


async def test_other_requests_are_the_applications(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/")).text == "the application"


async def test_previews_are_the_sandboxes(http: httpx2.AsyncClient, host: str) -> None:
    headers = {"host": host, "x-forwarded-for": "6.6.6.6"}
    told = (await http.post("/a%20b?c=d", headers=headers, content=b"12345")).json()
    assert (told["method"], told["path"], told["query"], told["size"]) == ("POST", "/a b", "c=d", 5)
    seen = dict(told["headers"])
    assert seen["x-forwarded-host"] == host
    assert seen["x-forwarded-for"] == "127.0.0.1"
    assert seen["x-original-url"] == f"http://{host}/a%20b?c=d"


async def test_answers_stream_with_all_their_cookies(http: httpx2.AsyncClient, host: str) -> None:
    answer = await http.get("/stream", headers={"host": host})
    assert answer.text == "piece 0\npiece 1\npiece 2\n"
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert [len(answer.headers.get_list(name)) for name in ("date", "server")] == [1, 1]


async def test_a_streamed_upload_arrives(http: httpx2.AsyncClient, host: str) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(100_000)

    told = (await http.put("/", headers={"host": host}, content=body())).json()
    assert told["size"] == 2_000_000


async def test_refusals_are_the_engines(http: httpx2.AsyncClient, host: str) -> None:
    wrong = {"host": host.rpartition("-")[0] + "-wrong.localhost"}
    answer = await http.get("/", headers=wrong)
    assert (answer.status_code, answer.json()["code"]) == (404, "INVALID_TOKEN")
    page = await http.get("/", headers=wrong | {"accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")


async def test_websockets_with_their_subprotocol_and_close_code(port: int, host: str) -> None:
    address = {"host": "127.0.0.1", "port": port}
    async with connect(f"ws://{host}/", subprotocols=["a", "b"], max_size=None, **address) as talk:  # type: ignore[arg-type, list-item]
        assert talk.subprotocol == "b"
        for message in ("text", b"bytes", b"x" * 5_000_000):
            await talk.send(message)
            assert await talk.recv() == message
        await talk.send("close")
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await talk.recv()
        assert closed.value.rcvd
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "as you wish")
    async with connect(f"ws://{host}/", **address) as talk:  # type: ignore[arg-type]
        await talk.close(4005, "enough")
    for path, name in (("/refused", host), ("/", host.replace(host.split("-")[2], "no.localhost"))):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await connect(f"ws://{name}{path}", **address)  # type: ignore[arg-type]
        assert refused.value.response.status_code in {403, 404}


async def test_without_an_engine_the_visitor_is_told(host: str) -> None:
    with served(preview_app(atoll.connect("http://127.0.0.1:1"))) as port:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            answer = await http.get("/", headers={"host": host})
            assert answer.status_code >= 500
            assert (await http.get("/")).status_code == 404
        with pytest.raises(websockets.InvalidStatus):
            await connect(f"ws://{host}/", host="127.0.0.1", port=port)
        with pytest.raises(websockets.InvalidStatus):
            await connect(f"ws://localhost:{port}/")


async def test_a_visitor_who_leaves_ends_the_request_at_the_service(
    here: Here, port: int, http: httpx2.AsyncClient
) -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.read()
        left.set()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        async with atoll.connect(here.url) as env:
            box = atoll.get_sandbox(env.Sandbox, "box")
            exposed = await box.expose_port(server.sockets[0].getsockname()[1])
        with pytest.raises(httpx2.ReadTimeout):
            await http.get("/", headers={"host": urlsplit(exposed.url).netloc}, timeout=0.3)
        async with asyncio.timeout(20):
            await left.wait()
