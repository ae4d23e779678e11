"""Keys and the audit record over HTTP, and that tenants do not see each other."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from atoll.engine.engine import Engine
from atoll.server.app import application
from atoll.server.auth import Listener
from atoll.server.gate import Desk
from atoll.wire import ops
from atoll.wire.keys import CreateKey, Scope
from atoll.wire.ops import Op
from integration.engine.scripted import World
from integration.server.conftest import BOX

REQUIRED = {
    "path": "/tmp/x", "source": "/a", "target": "/b", "command": "true", "url": "https://h/r.git",
    "pattern": "*", "text": "t", "find": "a", "replace": "b", "cols": "80", "rows": "24",
    "port": "80", "tag": "t", "name": "n", "env": "{}",
}  # fmt: skip


@asynccontextmanager
async def calling(engine: Engine, key: str) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(application(Desk(engine), Listener.LOOPBACK))
    headers = {"authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers
    ) as client:
        yield client


def address(op: Op[Any, Any], namespace: str, **places: str) -> str:
    known = {"namespace": namespace, "id": "box"} | places
    return re.sub(r"{(\w+)}", lambda match: known.get(match[1], "80"), op.path)


async def test_a_key_is_made_used_listed_and_revoked(client: httpx2.AsyncClient) -> None:
    made = (await client.post("/v2/keys", json={"name": "ci", "scope": "read"})).json()
    with_key = {"authorization": f"Bearer {made['key']}"}
    assert (await client.get("/v2/version", headers=with_key)).is_success
    assert (await client.put(BOX, json={}, headers=with_key)).status_code == 403
    listed = (await client.get("/v2/keys")).json()["keys"]
    assert listed == [made["info"]]
    assert made["key"] not in str(listed)
    assert (await client.delete(f"/v2/keys/{made['info']['id']}")).is_success
    assert (await client.get("/v2/version", headers=with_key)).is_success is True
    other = await client.post("/v2/keys", json={"name": "x"})
    assert other.is_success
    assert (await client.get("/v2/version", headers=with_key)).status_code == 401


@pytest.mark.parametrize(
    "body",
    [{}, {"name": ""}, {"name": "a\nb"}, {"name": "a", "scope": "root"},
     {"name": "a", "namespace": "../x"}, {"name": "a", "rate": 0}, {"name": "a", "concurrency": -1},
     {"name": "a", "expiresIn": -1}, {"name": "a", "key": "mine"}],
)  # fmt: skip
async def test_a_key_that_makes_no_sense_is_refused(
    client: httpx2.AsyncClient, body: dict[str, Any]
) -> None:
    assert (await client.post("/v2/keys", json=body)).status_code == 400


async def test_a_revoked_key_that_is_not_there_is_told(client: httpx2.AsyncClient) -> None:
    answer = await client.delete("/v2/keys/none")
    assert (answer.status_code, answer.json()["code"]) == (404, "KEY_NOT_FOUND")


@pytest.mark.parametrize(
    "op", [op for op in ops.TABLE if "{id}" in op.path], ids=lambda op: op.name
)
async def test_a_key_of_one_namespace_gets_nothing_of_another(
    engine: Engine, world: World, op: Op[Any, Any]
) -> None:
    """As if there were nothing: the same status, code and text, whether there is or not."""
    key = (await engine.keys.create(CreateKey(name="a", scope=Scope.ADMIN, namespace="A"))).key
    await engine.sandbox("B", "box").configure(ops.ENSURE.request())
    before = world.runtime.starts
    async with calling(engine, key) as client:
        told = []
        for id in ("box", "none"):
            answer = await request(client, op, "B", id)
            body = answer.json()
            told.append((answer.status_code, body["code"], body["message"], body["context"]))
    assert told[0] == told[1]
    assert told[0][:2] == (404, "SANDBOX_NOT_FOUND")
    assert world.runtime.starts == before


async def request(
    client: httpx2.AsyncClient, op: Op[Any, Any], namespace: str, id: str
) -> httpx2.Response:
    needed = {name: REQUIRED.get(name, "x") for name in op.request.__struct_fields__}
    wanted = {name: value for name, value in needed.items() if name in REQUIRED}
    path = address(op, namespace, id=id)
    return await client.request(op.method, path, params=wanted, content=b"{}")


@pytest.mark.parametrize(
    "op",
    [op for op in ops.TABLE if "{namespace}" not in op.path and not op.shared],
    ids=lambda op: op.name,
)
async def test_a_key_of_one_namespace_gets_nothing_of_the_engine(
    engine: Engine, op: Op[Any, Any]
) -> None:
    key = (await engine.keys.create(CreateKey(name="a", scope=Scope.ADMIN, namespace="A"))).key
    async with calling(engine, key) as client:
        answer = await client.request(op.method, address(op, ""), content=b"{}")
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    "op", [op for op in ops.TABLE if op.scope is not Scope.READ], ids=lambda op: op.name
)
async def test_a_scope_that_is_too_small_gets_nowhere(engine: Engine, op: Op[Any, Any]) -> None:
    below = Scope.READ if op.scope is Scope.RUN else Scope.RUN
    key = (await engine.keys.create(CreateKey(name="a", scope=below))).key
    async with calling(engine, key) as client:
        answer = await client.request(op.method, address(op, "N"), content=b"{}")
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


async def test_an_id_in_another_case_is_another_sandbox(client: httpx2.AsyncClient) -> None:
    assert (await client.put(BOX, json={})).is_success
    assert (await client.get(BOX.replace("box", "Box"))).status_code == 404
    assert (await client.get(BOX.replace("/N/", "/n/"))).status_code == 404


async def test_every_mutating_call_leaves_a_record_and_no_secret(
    client: httpx2.AsyncClient,
) -> None:
    canary = "s3cr3t-canary"
    made = (await client.post("/v2/keys", json={"name": "ci", "namespace": "N"})).json()
    key = {"authorization": f"Bearer {made['key']}", "x-request-id": "req-1"}
    await client.put(BOX, json={"env": {"TOKEN": canary}}, headers=key)
    await client.post(f"{BOX}/files/mkdir?x={canary}", json={"path": f"/{canary}"}, headers=key)
    await client.get(BOX, headers=key)
    await client.put(BOX.replace("/N/", "/M/"), json={}, headers=key)
    answer = await client.get("/v2/audit")
    assert canary not in answer.text
    assert made["key"] not in answer.text
    found = answer.json()["records"]
    assert [record["operation"] for record in found][-2:] == ["ensure_sandbox", "create_key"]
    assert found[0]["status"] == 404
    assert found[0]["code"] == "SANDBOX_NOT_FOUND"
    ensured = found[-2]
    assert ensured["caller"] == made["info"]["id"]
    assert ensured["target"] == {"namespace": "N", "id": "box"}
    assert (ensured["status"], ensured["requestId"]) == (200, "req-1")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT.*Z", ensured["at"])
    only = (await client.get("/v2/audit", params={"operation": "create_key"})).json()["records"]
    assert [record["caller"] for record in only] == ["owner"]


async def test_strangers_cannot_push_records_out(engine: Engine) -> None:
    await engine.keys.create(CreateKey(name="a"))
    async with calling(engine, "atoll_wrong") as client:
        assert (await client.put(BOX, json={})).status_code == 401
    assert (await engine.audit.read(ops.LIST_AUDIT.request())).records == []


async def test_too_many_requests_are_told_when_to_come_again(engine: Engine) -> None:
    made = await engine.keys.create(CreateKey(name="a", rate=0.5, scope=Scope.READ))
    async with calling(engine, made.key) as client:
        assert (await client.get("/v2/version")).is_success
        answer = await client.get("/v2/version")
    assert (answer.status_code, answer.json()["code"]) == (429, "RATE_LIMITED")
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["retryAfter"] > 0


async def test_a_client_of_another_api_is_told_so(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/v2/version", headers={"atoll-api": "2"})).is_success
    answer = await client.get("/v2/version", headers={"atoll-api": "9"})
    assert (answer.status_code, answer.json()["code"]) == (426, "VERSION_MISMATCH")


async def test_only_an_administrator_of_the_engine_sees_which_namespaces_there_are(
    engine: Engine,
) -> None:
    await engine.sandbox("Mine", "box").ensure_running()
    for scope, namespace, status in (
        (Scope.ADMIN, None, 200), (Scope.ADMIN, "Mine", 403), (Scope.RUN, None, 403),
    ):  # fmt: skip
        made = await engine.keys.create(CreateKey(name="k", scope=scope, namespace=namespace))
        async with calling(engine, made.key) as client:
            answer = await client.get("/v2/namespaces")
        assert answer.status_code == status
        assert (b"Mine" in answer.content) == (status == 200 or namespace == "Mine")
