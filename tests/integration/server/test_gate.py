import json
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from atoll.engine.engine import Engine
from atoll.server.app import application
from atoll.server.auth import Listener
from atoll.server.gate import Desk
from integration.server.conftest import BOX
from integration.server.engines import EngineProcess

PAGE = "https://app.example"


def served(engine: Engine, **settings: Any) -> httpx2.AsyncClient:
    server = msgspec.structs.replace(engine.settings.server, **settings)
    engine.settings = msgspec.structs.replace(engine.settings, server=server)
    transport = httpx2.ASGITransport(
        application(Desk(engine), Listener.LOOPBACK), client=("127.0.0.1", 4711)
    )
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")


def test_every_line_of_the_log_that_a_request_causes_has_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOLL_LOG_LEVEL", "debug")
    engine = EngineProcess(tmp_path / "state")
    before = len(engine.log.splitlines())
    with engine.client() as client:
        client.headers["x-request-id"] = "find-me"
        answers = [client.put(BOX, json={}), client.get("/v2/none"), client.delete(BOX)]
    lines = [json.loads(line) for line in engine.log.splitlines()[before:]]
    engine.end()
    assert {answer.headers["x-request-id"] for answer in answers} == {"find-me"}
    assert len(lines) >= 3
    assert {line.get("request_id") for line in lines} == {"find-me"}


async def test_no_web_page_may_call_unless_its_origin_is_configured(engine: Engine) -> None:
    ask = {"origin": PAGE, "access-control-request-method": "PUT"}
    async with served(engine, api_key="k") as client:
        answer = await client.options(BOX, headers=ask)
        assert answer.status_code == 401
        assert not any(name.startswith("access-control") for name in answer.headers)


async def test_a_configured_page_may_call_with_a_key(engine: Engine) -> None:
    ask = {"origin": PAGE, "access-control-request-method": "PUT"}
    async with served(engine, api_key="k", cors_origins=(PAGE,)) as client:
        answer = await client.options(BOX, headers=ask)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == PAGE
        refused = await client.get(BOX, headers={"origin": PAGE})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == PAGE
        other = await client.options(BOX, headers=ask | {"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


async def test_who_is_recorded_is_who_a_trusted_proxy_names(engine: Engine) -> None:
    async with served(engine, api_key="k", trusted_proxies=("127.0.0.1",)) as client:
        key = {"authorization": "Bearer k", "x-forwarded-for": "192.0.2.7"}
        await client.put(BOX, json={}, headers=key)
    (record,) = [json.loads(line) for line in audit_lines(engine)]
    assert record["client"] == "192.0.2.7"


async def test_what_others_say_about_where_they_come_from_does_not_count(engine: Engine) -> None:
    async with served(engine, api_key="k") as client:
        key = {"authorization": "Bearer k", "x-forwarded-for": "192.0.2.7"}
        await client.put(BOX, json={}, headers=key)
    (record,) = [json.loads(line) for line in audit_lines(engine)]
    assert record["client"] == "127.0.0.1"


def audit_lines(engine: Engine) -> list[str]:
    return (engine.settings.storage.state_dir / "audit" / "audit.jsonl").read_text().splitlines()


async def test_a_document_may_be_asked_for_with_a_token_and_nothing_else_may(
    engine: Engine,
) -> None:
    """A key in an address ends up in histories and logs."""
    async with served(engine, api_key="k") as client:
        document = await client.get("/v2/openapi.json?token=k")
        assert document.json()["openapi"] == "3.1.0"
        assert (await client.get("/v2/openapi.json")).status_code == 401
        assert (await client.get("/v2/version?token=k")).status_code == 401


async def test_a_key_is_asked_for_in_the_way_http_has_for_it(engine: Engine) -> None:
    async with served(engine, api_key="k") as client:
        assert (await client.get(BOX)).headers["www-authenticate"] == "Bearer"
