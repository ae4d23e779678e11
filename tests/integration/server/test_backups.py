import uuid

import httpx2

from integration.engine.packing import TAR, Inside
from integration.engine.scripted import World
from integration.server.conftest import BOX

BACKUPS = BOX.rsplit("/sandboxes", 1)[0] + "/backups"


async def test_a_backup_is_made_listed_put_back_and_deleted(
    client: httpx2.AsyncClient, world: World
) -> None:
    inside = Inside(world)
    body = {"dir": "/workspace", "ttl": 60_000, "gitignore": True}
    made = (await client.post(BOX + "/backups", json=body)).json()
    assert (made["dir"], made["contentSize"], made["sandbox"]) == ("/workspace", 99, "box")
    assert (await client.get(BACKUPS)).json() == {"backups": [made], "cursor": None}
    assert (await client.get(BACKUPS, params={"sandbox": "other"})).json()["backups"] == []
    assert (await client.get(f"{BACKUPS}/{made['id']}")).json() == made
    put_back = await client.post(BOX + "/backups/restore", json={"backup": made["id"]})
    assert put_back.json() == {
        "success": True, "id": made["id"], "dir": "/workspace", "files": 3, "size": 99,
    }  # fmt: skip
    assert inside.unpacked == [TAR]
    assert (await client.delete(f"{BACKUPS}/{made['id']}")).json() == {"success": True}
    gone = await client.post(BOX + "/backups/restore", json={"backup": made["id"]})
    assert (gone.status_code, gone.json()["code"]) == (404, "BACKUP_NOT_FOUND")


async def test_refusals_are_typed(client: httpx2.AsyncClient) -> None:
    for path, body, code in (
        ("/backups", {"dir": "/etc"}, "INVALID_BACKUP_CONFIG"),
        ("/backups", {"dir": "/tmp", "compression": "x"}, "INVALID_BACKUP_CONFIG"),
        ("/backups/restore", {"backup": "x"}, "INVALID_BACKUP_CONFIG"),
        ("/backups/restore", {"backup": str(uuid.uuid4())}, "BACKUP_NOT_FOUND"),
    ):
        answer = await client.post(BOX + path, json=body)
        assert answer.json()["code"] == code
