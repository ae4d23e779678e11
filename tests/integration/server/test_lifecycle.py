import asyncio
import json

import httpx2

from atoll.engine.engine import Engine
from atoll.engine.lifecycle import lives
from integration.engine.scripted import World
from integration.server.conftest import BOX

NDJSON = {"accept": "application/x-ndjson"}


async def events(client: httpx2.AsyncClient, query: str = "") -> list[tuple[int, str]]:
    lines = (await client.get(BOX + "/events" + query, headers=NDJSON)).text.splitlines()
    return [(event["seq"], event["type"]) for event in map(json.loads, lines)]


async def test_events_tell_what_happened_and_wake_nothing(
    client: httpx2.AsyncClient, world: World
) -> None:
    assert await events(client) == []
    await client.post(BOX + "/start")
    await client.post(BOX + "/stop")
    told = [(1, "starting"), (2, "running"), (3, "stopping"), (4, "stopped")]
    assert await events(client) == told
    assert await events(client, "?after=2") == told[2:]
    assert world.runtime.starts == 1
    await client.delete(BOX)
    assert (await events(client))[-1] == (5, "destroyed")


async def test_events_are_followed_as_they_happen(client: httpx2.AsyncClient) -> None:
    async with (
        asyncio.timeout(10),
        client.stream("GET", BOX + "/events?follow=true", headers=NDJSON) as answer,
    ):
        assert answer.status_code == 200
        lines = answer.aiter_lines()
        assert json.loads(await anext(lines)) == {"type": "heartbeat"}
        starting = asyncio.ensure_future(client.post(BOX + "/start"))
        seen = [json.loads(await anext(lines))["type"] for _ in range(2)]
        assert seen == ["starting", "running"]
        await starting


async def test_events_are_server_sent_where_that_is_asked_for(client: httpx2.AsyncClient) -> None:
    await client.put(BOX, json={})
    answer = await client.get(BOX + "/events", headers={"accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    (line,) = [line for line in answer.text.splitlines() if line]
    assert json.loads(line.removeprefix("data: "))["type"] == "created"


async def test_sleep_stops_or_freezes_as_the_mode_says(
    client: httpx2.AsyncClient, world: World
) -> None:
    await client.post(BOX + "/start")
    assert (await client.post(BOX + "/sleep")).json()["state"] == "stopped"
    await client.put(BOX, json={"sleepMode": "freeze"})
    await client.post(BOX + "/start")
    told = (await client.post(BOX + "/sleep")).json()
    assert (told["state"], told["reason"]) == ("frozen", "requested")
    assert world.runtime.paused


async def test_renewing_starts_idle_time_anew_and_wakes_nothing(
    client: httpx2.AsyncClient, engine: Engine, world: World
) -> None:
    assert (await client.post(BOX + "/activity")).status_code == 404
    await client.post(BOX + "/start")
    activity = engine.sandbox("N", "box").activity
    activity.last -= 100
    assert (await client.post(BOX + "/activity")).is_success
    assert activity.idle() < 50
    await client.post(BOX + "/stop")
    assert (await client.post(BOX + "/activity")).is_success
    assert world.runtime.starts == 1


async def test_metrics_and_placement_are_told_also_of_what_sleeps(
    client: httpx2.AsyncClient,
) -> None:
    assert (await client.get(BOX + "/metrics")).status_code == 404
    await client.post(BOX + "/start")
    assert (await client.get(BOX)).json()["placementId"].startswith("e0-")
    await client.post(BOX + "/stop")
    assert (await client.get(BOX)).json()["placementId"] is None
    assert (await client.get(BOX + "/metrics")).json()["limits"]["pids"] > 0


async def test_the_pool_is_filled_shown_and_emptied(
    client: httpx2.AsyncClient, world: World
) -> None:
    assert (await client.get("/v2/pool")).json()["total"] == 0
    assert (await client.post("/v2/pool/prime", json={"target": 2})).json()["warm"] == 2
    assert (await client.post("/v2/pool/shutdown")).json()["warm"] == 0
    assert world.left() == {}
    refused = await client.post("/v2/pool/prime", json={"target": 1, "instanceType": "huge"})
    assert refused.json()["code"] == "VALIDATION_FAILED"


async def test_a_call_that_means_a_destroyed_sandbox_starts_no_other(
    client: httpx2.AsyncClient, engine: Engine, world: World
) -> None:
    await client.post(BOX + "/start")
    record = engine.sandbox("N", "box").record
    assert record
    meant = {"atoll-life": lives.of(record)}
    calls = [("POST", "/exec", {"command": ["x"]}), ("POST", "/files/mkdir", {"path": "/d"}),
             ("GET", "/processes", None), ("POST", "/start", None)]  # fmt: skip

    async def asked() -> list[str | None]:
        answers = [await client.request(method, BOX + path, json=body, headers=meant)
                   for method, path, body in calls]  # fmt: skip
        return [answer.json().get("code") for answer in answers]

    assert "STALE_HANDLE" not in await asked()
    await client.post(BOX + "/stop")
    assert "STALE_HANDLE" not in await asked()
    await client.delete(BOX)
    starts = world.runtime.starts
    assert await asked() == ["STALE_HANDLE"] * len(calls)
    assert world.runtime.starts == starts
    assert (await client.get(BOX)).status_code == 404
    await client.post(BOX + "/start")
    assert await asked() == ["STALE_HANDLE"] * len(calls)


async def test_one_that_is_destroyed_while_a_call_comes_is_not_started_anew(
    client: httpx2.AsyncClient, engine: Engine, world: World
) -> None:
    await client.post(BOX + "/start")
    record = engine.sandbox("N", "box").record
    assert record
    meant = {"atoll-life": lives.of(record)}
    body = {"command": ["x"]}
    calls = [client.post(BOX + "/exec", json=body, headers=meant) for _ in range(20)]
    _, *answers = await asyncio.gather(client.delete(BOX), *calls)
    assert all(answer.status_code in {200, 409, 410} for answer in answers)
    assert world.runtime.starts == 1


async def test_a_context_of_a_sandbox_that_does_not_run_is_not_looked_for_in_a_new_one(
    client: httpx2.AsyncClient, world: World
) -> None:
    for method, path, body in (
        ("DELETE", "/contexts/c", None), ("GET", "/contexts/c/variables", None),
        ("POST", "/contexts/c/interrupt", None), ("POST", "/code", {"code": "1", "context": "c"}),
    ):  # fmt: skip
        answer = await client.request(method, BOX + path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "CONTEXT_NOT_FOUND"), path
    assert world.runtime.starts == 0
