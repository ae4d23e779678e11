import httpx2

from integration.server.conftest import BOX

DISK = BOX.rsplit("/sandboxes", 1)[0] + "/disk"


async def test_the_disk_is_accounted_for(client: httpx2.AsyncClient) -> None:
    await client.post(BOX + "/snapshots", json={})
    told = (await client.get(DISK, params={"limit": 1})).json()
    assert len(told["entries"]) == 1
    assert told["counts"] == {"sandbox": 1, "snapshot": 1}


async def test_collecting_is_only_told_of_unless_asked_for(client: httpx2.AsyncClient) -> None:
    told = (await client.post("/v2/gc", json={})).json()
    assert told == {"items": [], "size": 0, "dryRun": True, "shrunk": 0, "store": None}
    done = (await client.post("/v2/gc", json={"dryRun": False})).json()
    assert done["dryRun"] is False
