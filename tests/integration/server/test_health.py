import asyncio

import httpx2
import pytest

from atoll.engine.engine import Engine
from atoll.server import health
from atoll.server.app import application
from atoll.server.auth import Listener
from atoll.server.gate import Desk


def caller(desk: Desk) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(application(desk, Listener.NETWORK))
    return httpx2.AsyncClient(transport=transport, base_url="http://far.example")


async def test_an_engine_that_works_is_alive_and_ready_for_anybody_who_asks(engine: Engine) -> None:
    async with caller(Desk(engine)) as client:
        for path in ("/health", "/healthz", "/readyz"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (200, {"ok": True})


async def test_an_engine_that_stops_is_alive_but_not_ready(engine: Engine) -> None:
    desk = Desk(engine)
    await desk.underway.drain(0.0)
    async with caller(desk) as client:
        assert (await client.get("/healthz")).status_code == 200
        for path in ("/health", "/readyz"):
            answer = await client.get(path)
            assert answer.status_code == 503
            assert answer.json() == {"ok": False, "errors": ["the engine is stopping"]}


async def test_an_engine_whose_store_hangs_is_alive_but_not_ready(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(health, "STORE_TIME", 0.05)
    monkeypatch.setattr(engine.store, "read", hang)
    async with caller(Desk(engine)) as client:
        assert (await client.get("/healthz")).status_code == 200
        answer = await client.get("/readyz")
        assert answer.json()["errors"] == ["the store does not answer"]
