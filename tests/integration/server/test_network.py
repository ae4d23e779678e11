import asyncio
import json

import httpx2

from atoll.engine.egress.enforcing import log_name
from atoll.network.gateway.log import Log
from atoll.network.gateway.protocol import Decision
from integration.engine.scripted import World
from integration.server.conftest import BOX

LOG = BOX + "/network/log"
NDJSON = {"accept": "application/x-ndjson"}


def decide(world: World, *hosts: str) -> None:
    assert world.gateway
    world.gateway.logs.mkdir(parents=True, exist_ok=True)
    log = Log(world.gateway.logs, log_name("N/box"))
    for host in hosts:
        log.write(Decision(time=1, protocol="dns", verdict="refused", rule="r", host=host))
    log.close()


async def test_a_policy_is_changed_and_read(client: httpx2.AsyncClient, world: World) -> None:
    assert (await client.get(BOX + "/network")).status_code == 404
    change = {"allow": ["A.test"], "deniedHosts": ["*.b.test"]}
    changed = (await client.post(BOX + "/network", json=change)).json()
    assert (changed["mode"], changed["allowedHosts"]) == ("gateway", ["a.test"])
    assert (await client.get(BOX + "/network")).json() == changed
    assert world.runtime.starts == 0
    back = await client.post(BOX + "/network", json={"disallow": ["a.test"], "deniedHosts": None})
    assert back.json()["mode"] == "direct"


async def test_what_is_no_host_or_handler_is_refused(client: httpx2.AsyncClient) -> None:
    for change in ({"allow": ["http://a.test"]}, {"outbound": {"name": "x"}}, {"alow": ["a.test"]}):
        answer = await client.post(BOX + "/network", json=change)
        assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_FAILED")
    assert (await client.get(BOX)).status_code == 404, "nothing was stored"


async def test_decisions_are_read_from_a_cursor_on(
    client: httpx2.AsyncClient, world: World
) -> None:
    assert (await client.get(LOG, headers=NDJSON)).status_code == 404
    await client.put(BOX, json={})
    decide(world, "a.test", "b.test")
    lines = (await client.get(LOG, headers=NDJSON)).text.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["host"] for event in events] == ["a.test", "b.test"]
    rest = await client.get(LOG, params={"after": events[0]["cursor"]}, headers=NDJSON)
    assert json.loads(rest.text) == events[1]
    assert (await client.get(LOG, params={"after": "x"})).status_code == 400
    assert world.runtime.starts == 0


async def test_decisions_are_followed(client: httpx2.AsyncClient, world: World) -> None:
    query = {"follow": "true"}
    async with (
        asyncio.timeout(10),
        client.stream("GET", LOG, params=query, headers=NDJSON) as answer,
    ):
        lines = answer.aiter_lines()
        assert json.loads(await anext(lines)) == {"type": "heartbeat"}
        decide(world, "a.test")
        assert json.loads(await anext(lines))["host"] == "a.test"


async def test_decisions_of_a_destroyed_sandbox_are_gone(
    client: httpx2.AsyncClient, world: World
) -> None:
    await client.put(BOX, json={})
    decide(world, "a.test")
    await client.delete(BOX)
    await client.put(BOX, json={})
    assert (await client.get(LOG, headers=NDJSON)).text == ""
