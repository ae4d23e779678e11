"""`proxy_to_sandbox` and `ws_connect` in a Worker."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import websockets
from websockets.asyncio.client import connect

import atoll
from atoll.workers import Request, Response
from atoll.workers.app import WorkerApp
from atoll.workers.entry import Context
from atoll.workers.preview import proxy_to_sandbox
from integration.services import Here, running, served

OFFERED = [websockets.Subprotocol("a"), websockets.Subprotocol("b")]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with running(tmp_path_factory.mktemp("preview") / "state") as found:
        yield found


@pytest.fixture(scope="module")
def port(here: Here) -> Iterator[int]:
    """Port of a Worker."""
    env = atoll.connect(here.url)

    async def fetch(request: Request) -> Any:
        if response := await proxy_to_sandbox(request, env):
            return response
        box = atoll.get_sandbox(env.Sandbox, "box")
        if request.url.pathname == "/socket":
            return await box.ws_connect(request, here.port)
        if request.url.pathname == "/fetch":
            return await box.container_fetch(request, here.port)
        return Response("the Worker")

    with served(WorkerApp(fetch, Context(), dev=False)) as found:
        yield found


async def exposed(here: Here, port: int) -> str:
    async with atoll.connect(here.url) as env:
        box = atoll.get_sandbox(env.Sandbox, "box")
        return urlsplit((await box.expose_port(here.port, hostname=f"localhost:{port}")).url).netloc


async def test_previews_never_reach_the_workers_own_code(here: Here, port: int) -> None:
    host = await exposed(here, port)
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        assert (await http.get("/")).text == "the Worker"
        told = (await http.post("/a?b", headers={"host": host}, content=b"123")).json()
        assert (told["path"], told["query"], told["size"]) == ("/a", "b", 3)
        assert dict(told["headers"])["x-forwarded-for"] == "127.0.0.1"
        assert (await http.get("/fetch?x=1")).json()["query"] == "x=1"
        assert (await http.put("/fetch", content=b"1234")).json()["size"] == 4


async def test_websockets_by_a_preview_and_by_the_worker_itself(
    here: Here, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    host = await exposed(here, port)
    for url in (f"ws://{host}/", f"ws://localhost:{port}/socket"):
        async with connect(
            url,
            host="127.0.0.1",
            port=port,
            subprotocols=OFFERED,
            max_size=None,
        ) as talk:
            assert talk.subprotocol == "b"
            await talk.send(b"x" * 5_000_000)
            assert len(await talk.recv()) == 5_000_000
            await talk.send("close")
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await talk.recv()
            assert closed.value.rcvd
            assert closed.value.rcvd.code == 4001
        async with connect(url, host="127.0.0.1", port=port) as talk:
            await talk.close(4005, "enough")
    assert not caplog.records  # a visitor who closes is none of the Worker's faults
    with pytest.raises(websockets.InvalidStatus) as refused:
        await connect(f"ws://localhost:{port}/other")
    assert refused.value.response.status_code == 200
