import httpx2

from integration.server.conftest import BOX

KEY = {"accessKeyId": "a", "secretAccessKey": "b"}
WHOLE = {"bucket": "bucket", "path": "/data", "endpoint": "https://h", "credentials": KEY}


async def test_nothing_is_mounted_at_first(client: httpx2.AsyncClient) -> None:
    assert (await client.get(BOX + "/mounts")).json() == {"mounts": []}
    gone = await client.request("DELETE", BOX + "/mounts", params={"path": "/data"})
    assert (gone.status_code, gone.json()["code"]) == (404, "MOUNT_NOT_FOUND")


async def test_refusals_are_typed_and_start_nothing(client: httpx2.AsyncClient) -> None:
    for fields, status, code in (
        ({"path": "/"}, 400, "INVALID_MOUNT_CONFIG"),
        ({"bucket": None}, 400, "INVALID_MOUNT_CONFIG"),
        ({"binding": "B"}, 400, "INVALID_MOUNT_CONFIG"),
        ({"bucket": None, "endpoint": None, "binding": "B"}, 400, "INVALID_MOUNT_CONFIG"),
        ({"localBucket": True}, 400, "INVALID_MOUNT_CONFIG"),
        ({"credentials": None}, 400, "MISSING_CREDENTIALS"),
        ({"credentials": {"accessKeyId": "a"}}, 400, "VALIDATION_FAILED"),
        ({"s3fsOptions": ["logfile=/x"]}, 400, "INVALID_MOUNT_CONFIG"),
    ):
        answer = await client.post(BOX + "/mounts", json=WHOLE | fields)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert (await client.get(BOX)).status_code == 404


async def test_a_level_without_mounts_says_so(client: httpx2.AsyncClient) -> None:
    answer = await client.post(BOX + "/mounts", json=WHOLE)
    assert answer.json()["code"] == "NOT_SUPPORTED_BY_RUNTIME", answer.text
