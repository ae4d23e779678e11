"""Ports over HTTP, as a program without our SDK would ask."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from atoll.engine.engine import Engine
from atoll.server import ports
from atoll.wire.ports import RAW
from integration.engine.scripted import World
from integration.server.conftest import BOX, client, engine, opener, world
from integration.server.engines import EngineProcess

__all__ = ["client", "engine", "opener", "world"]

LONG = 3_000_000_000_000
"""Milliseconds: nearly the longest duration there is."""


async def test_what_is_told_of_a_port(client: httpx2.AsyncClient) -> None:
    answer = await client.post(f"{BOX}/ports", json={"port": 8080, "hostname": "example.com"})
    told = answer.json()
    assert told["url"].startswith("https://8080-box-")
    assert (told["status"], told["public"], told["secret"]) == ("active", True, None)
    token = told["url"].split("-")[2].split(".")[0]
    assert (await client.get(f"{BOX}/ports")).json() == {"ports": [told]}
    other = (await client.get(f"{BOX}/ports", params={"hostname": "localhost:1"})).json()
    assert other["ports"][0]["url"].endswith(".localhost:1")
    state = (await client.get(f"{BOX}/ports/8080", params={"token": token})).json()
    assert state == {"exposed": True, "valid": True}
    assert (await client.get(f"{BOX}/ports/8080/log")).json() == {"visits": []}
    assert (await client.delete(f"{BOX}/ports/8080")).json() == {"success": True}
    assert (await client.get(f"{BOX}/ports/8080")).json() == {"exposed": False, "valid": False}


async def test_a_hostname_that_is_not_given_is_the_engines(client: httpx2.AsyncClient) -> None:
    told = (await client.post(f"{BOX}/ports", json={"port": 8080})).json()
    assert ".localhost" in told["url"]


async def test_what_is_malformed_is_typed(client: httpx2.AsyncClient) -> None:
    for port, code in (("x", "INVALID_PORT_NUMBER"), ("0", "INVALID_PORT_NUMBER"),
                       ("80", "INVALID_PORT"), ("3000", "INVALID_PORT")):  # fmt: skip
        assert (await client.get(f"{BOX}/ports/{port}")).json()["code"] == code
    bad = await client.get(f"{BOX}/ports", params={"hostname": "a b"})
    assert bad.json()["code"] == "VALIDATION_FAILED"
    assert (await client.post(f"{BOX}/ports/8080/link", json={})).json()[
        "code"
    ] == "PORT_NOT_EXPOSED"


async def test_a_raw_connection_has_to_be_asked_for_as_one(client: httpx2.AsyncClient) -> None:
    plain = await client.get("/v2/previews")
    assert (plain.status_code, plain.json()["code"]) == (400, "VALIDATION_FAILED")
    upgrade = {"connection": "upgrade", "upgrade": RAW}
    nothing = await client.get(f"{BOX}/ports/1/connect", headers=upgrade)
    assert (nothing.status_code, nothing.json()["code"]) == (502, "SERVICE_NOT_RESPONDING")


@pytest.fixture
def here(world: World) -> None:
    """The ports of sandboxes are those of this process."""
    world.runtime.pid = os.getpid()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "ports/wait", {"ports": [1], "wait": LONG}),
     ("GET", f"ports/1/connect?wait={LONG}", None)],
)  # fmt: skip
@pytest.mark.parametrize("key", [None, "k1"])
async def test_a_wait_ends_with_its_caller(
    client: httpx2.AsyncClient, engine: Engine, method: str, path: str, body: Any, key: str | None
) -> None:
    """Else it would keep the sandbox awake for nobody, for as long as the caller once said."""
    headers = {"idempotency-key": key} if key else {}
    activity = engine.sandbox("N", "box").activity
    async with asyncio.timeout(20):
        with pytest.raises(httpx2.ReadTimeout):
            await client.request(method, f"{BOX}/{path}", json=body, headers=headers, timeout=2)
        left = time.monotonic()
        while activity.holds():
            await asyncio.sleep(0.01)
    assert time.monotonic() - left < 1


@pytest.mark.usefixtures("here")
async def test_one_request_waits_for_a_bounded_time(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "MAX_WAIT", 0.1)
    asked = {"ports": [1], "wait": LONG, "interval": LONG}
    answer = await client.post(f"{BOX}/ports/wait", json=asked)
    assert answer.json() == {"missing": [1]}
    upgrade = {"connection": "upgrade", "upgrade": RAW}
    nothing = await client.get(f"{BOX}/ports/1/connect?wait={LONG}", headers=upgrade)
    assert nothing.json()["code"] == "SERVICE_NOT_RESPONDING"


def test_a_key_of_one_namespace_connects_to_no_other(tmp_path: Path) -> None:
    engine = EngineProcess(tmp_path / "state", "--port", "0")
    with engine.client() as owner:
        key = owner.post("/v2/keys", json={"name": "k", "namespace": "A", "scope": "run"}).json()
        headers = {"authorization": f"Bearer {key['key']}", "connection": "upgrade", "upgrade": RAW}
        with httpx2.Client(base_url=engine.hello["url"], headers=headers) as caller:
            for path in ("/v2/namespaces/B/sandboxes/box/ports/8080/connect",
                         "/v2/namespaces/B/sandboxes/box/ports/8080"):  # fmt: skip
                assert caller.get(path).status_code == 404
            with caller.stream("GET", "/v2/previews?namespaces=B") as raw:
                assert raw.status_code == 101
                stream = raw.extensions["network_stream"]
                stream.write(b"GET / HTTP/1.1\r\nHost: 8080-box-tok.localhost\r\n\r\n")
                assert b"404 Not Found" in stream.read(1 << 16)
    engine.end()
