import json

import httpx2

from integration.server.conftest import BOX

SNAPSHOTS = BOX.rsplit("/sandboxes", 1)[0] + "/snapshots"


async def test_a_snapshot_is_taken_listed_told_and_forgotten(client: httpx2.AsyncClient) -> None:
    body = {"name": "first", "labels": {"a": "b"}, "ttl": 60_000}
    taken = (await client.post(BOX + "/snapshots", json=body)).json()
    assert (taken["name"], taken["labels"], taken["parent"]) == ("first", {"a": "b"}, None)
    assert taken["expiresAt"]
    listed = await client.get(SNAPSHOTS, params={"labels": "a=b", "limit": 5})
    assert listed.json() == {"snapshots": [taken], "cursor": None}
    assert (await client.get(SNAPSHOTS, params={"labels": "a=c"})).json()["snapshots"] == []
    assert (await client.get(f"{SNAPSHOTS}/{taken['id']}")).json() == taken
    assert (await client.delete(f"{SNAPSHOTS}/{taken['id']}")).json() == {"success": True}
    gone = await client.get(f"{SNAPSHOTS}/{taken['id']}")
    assert (gone.status_code, gone.json()["code"]) == (404, "SNAPSHOT_NOT_FOUND")


async def test_forks_restore_and_comparison(client: httpx2.AsyncClient) -> None:
    taken = (await client.post(BOX + "/snapshots", json={})).json()["id"]
    forks = (await client.post(BOX + "/fork", json={"id": "f", "count": 2})).json()["forks"]
    assert forks == [{"id": "f-1", "error": None}, {"id": "f-2", "error": None}]
    info = (await client.post(BOX + "/restore", json={"snapshot": taken})).json()
    assert (info["state"], info["reason"]) == ("stopped", "restored")
    diff = (await client.get(BOX + "/diff", params={"since": taken})).json()
    assert diff == {"changes": [], "truncated": False}


async def test_what_is_not_there_is_an_ordinary_refusal(client: httpx2.AsyncClient) -> None:
    for answer in (
        await client.post(BOX + "/restore", json={"snapshot": "none"}),
        await client.get(BOX + "/diff", params={"since": "none"}),
        await client.post(BOX + "/fork", json={"fromSnapshot": "none"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "SNAPSHOT_NOT_FOUND")
    assert (await client.post(BOX + "/fork", json={"count": 0})).status_code == 400


async def test_one_file_goes_out_and_in(client: httpx2.AsyncClient) -> None:
    body = {"name": "first", "labels": {"a": "b" * 60_000}}
    taken = (await client.post(BOX + "/snapshots", json=body)).json()
    out = await client.get(f"{SNAPSHOTS}/{taken['id']}/export")
    assert out.content.startswith(b"ATOLL-SNAPSHOT {")
    again = (await client.post(SNAPSHOTS, content=out.content)).json()
    assert (again["name"], again["labels"]) == (taken["name"], taken["labels"])
    refused = await client.post(SNAPSHOTS, content=out.content[:-9])
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_FAILED")


async def test_a_patch_is_text_with_its_size_told(client: httpx2.AsyncClient) -> None:
    taken = (await client.post(BOX + "/snapshots", json={})).json()["id"]
    patch = await client.get(BOX + "/diff/patch", params={"since": taken})
    told = json.loads(patch.headers["atoll-result"])
    assert (patch.content, told) == (b"", {"size": 0, "truncated": False})
    gone = await client.get(BOX + "/diff/patch", params={"since": "none"})
    assert (gone.status_code, gone.json()["code"]) == (404, "SNAPSHOT_NOT_FOUND")
