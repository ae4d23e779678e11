"""`proxy_to_sandbox` of both SDKs with a request of whatever framework."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import atoll
import atoll.sync
from atoll.errors import ValidationFailedError
from atoll.sdk._async import previews
from atoll.sdk._async.service import ServiceResponse
from atoll.sdk._async.websocket import WebSocket
from integration.services import Here, running


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with running(tmp_path_factory.mktemp("previews") / "state") as found:
        yield found


def request(url: str, **more: Any) -> Any:
    return SimpleNamespace(
        **{"url": url, "method": "GET", "headers": {}, "client": "9.8.7.6"} | more
    )


async def exposed(env: atoll.Environment, here: Here, namespace: str = "Sandbox") -> str:
    box = atoll.get_sandbox(env.namespace(namespace), "box")
    return (await box.expose_port(here.port, hostname="preview.example:8443")).url


async def test_what_is_no_preview_goes_on() -> None:
    for url in ("http://localhost:8787/", "https://www.example.com/8080-box-tok"):
        assert await previews.proxy_to_sandbox(request(url), None) is None


async def test_a_preview_of_any_domain_is_answered(here: Here) -> None:
    async with atoll.connect(here.url) as env:
        url = await exposed(env, here)
        fields = {"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "gopher", "X-A": "1"}
        answer = await previews.proxy_to_sandbox(request(f"{url}/a?b", headers=fields), env)
        assert isinstance(answer, ServiceResponse)
        headers = dict((await answer.json())["headers"])
        assert headers["x-forwarded-for"] == "9.8.7.6"
        assert headers["x-original-url"] == f"{url}/a?b"
        assert headers["x-a"] == "1"


async def test_only_the_sandboxes_of_env_can_be_visited(here: Here) -> None:
    async with atoll.connect(here.url) as env:
        url = await exposed(env, here, "Other")
        for reach, status in ((env, 200), (env.Other, 200), ({"A": env.Other}, 200),
                              (env.Sandbox, 404), ({"A": env.Sandbox, "B": 1}, 404)):  # fmt: skip
            answer = await previews.proxy_to_sandbox(request(url), reach)
            assert isinstance(answer, ServiceResponse)
            assert answer.status == status
            await answer.aclose()
        with pytest.raises(ValidationFailedError):
            await previews.proxy_to_sandbox(request(url), {})


async def test_a_websocket_is_opened(here: Here) -> None:
    async with atoll.connect(here.url) as env:
        url = await exposed(env, here)
        fields = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x",
                  "Sec-WebSocket-Protocol": "one, two"}  # fmt: skip
        socket = await previews.proxy_to_sandbox(request(url, headers=fields), env)
        assert isinstance(socket, WebSocket)
        async with socket:
            assert socket.subprotocol == "two"
            await socket.send("hello")
            assert await socket.receive() == "hello"


async def test_the_blocking_sdk_does_the_same(here: Here) -> None:
    def run() -> tuple[int, Any]:
        with atoll.sync.connect(here.url) as env:
            box = atoll.sync.get_sandbox(env.Sandbox, "box")
            url = box.expose_port(here.port).url
            asked = request(url, method="POST", body=b"12345", headers={"Content-Length": "5"})
            answer = atoll.sync.proxy_to_sandbox(asked, env)
            assert answer is not None
            assert not hasattr(answer, "send")
            return answer.status, answer.json()["size"]

    assert await asyncio.to_thread(run) == (200, 5)
