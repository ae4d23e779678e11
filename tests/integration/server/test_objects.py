import asyncio
import json

import httpx2

from atoll.engine.engine import Engine
from integration.server.conftest import BOX

CLASS = {"namespace": "N", "name": "Box", "methods": ["f"], "alarm": True}


async def test_a_worker_attaches_is_called_and_answers(
    client: httpx2.AsyncClient, engine: Engine
) -> None:
    async with client.stream("POST", "/v2/projects/p/worker", json={"classes": [CLASS]}) as stream:
        lines = stream.aiter_lines()
        first = json.loads(await anext(lines))
        assert first == {"type": "attached", "objects": str(engine.objects.directory)}
        call = asyncio.create_task(client.post(f"{BOX}/call", json={"method": "f", "args": [1]}))
        asked = json.loads(await anext(lines))
        assert (asked["method"], asked["args"]) == ("f", [1])
        answer = {"value": {"x": 1}}
        told = await client.post(f"/v2/projects/p/calls/{asked['call']}", json=answer)
        assert told.json() == {"success": True}
        assert (await call).json() == {"value": {"x": 1}}
        late = await client.post(f"/v2/projects/p/calls/{asked['call']}", json=answer)
        assert late.json()["code"] == "OPERATION_NOT_FOUND"
    async with asyncio.timeout(5):
        while engine.objects.deliveries.attached("p"):
            await asyncio.sleep(0.01)


async def test_alarms_and_schedules_over_http(client: httpx2.AsyncClient, engine: Engine) -> None:
    async with client.stream("POST", "/v2/projects/p/worker", json={"classes": [CLASS]}) as stream:
        await anext(stream.aiter_lines())
        at = "2100-01-01T00:00:00Z"
        assert (await client.put(f"{BOX}/alarm", json={"at": at})).json()["at"] == at
        assert (await client.get(f"{BOX}/alarm")).json()["at"] == at
        await client.delete(f"{BOX}/alarm")
        assert (await client.get(f"{BOX}/alarm")).json() == {"at": None}
        made = await client.post(f"{BOX}/schedules", json={"method": "f", "delay": 60_000})
        found = (await client.get(f"{BOX}/schedules")).json()["schedules"]
        assert found == [made.json()]
        gone = await client.delete(f"{BOX}/schedules/{made.json()['id']}")
        assert gone.status_code == 200
        again = await client.delete(f"{BOX}/schedules/{made.json()['id']}")
        assert again.status_code == 404


async def test_a_project_keeps_its_namespaces(client: httpx2.AsyncClient) -> None:
    answer = await client.put("/v2/projects/p", json={"classes": {"Box": "boxes"}})
    assert answer.json() == {"namespaces": {"Box": "boxes"}, "tag": None}
    wrong = {"migrations": [{"tag": "v1", "deletedClasses": ["No"]}]}
    refused = await client.put("/v2/projects/p", json=wrong)
    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_CONFIG")


async def test_calling_what_is_not_there_is_a_typed_error(client: httpx2.AsyncClient) -> None:
    answer = await client.post(f"{BOX}/call", json={"method": "f"})
    assert (answer.status_code, answer.json()["code"]) == (404, "METHOD_NOT_FOUND")
