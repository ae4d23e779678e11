import httpx2

from integration.server.conftest import BOX

VOLUMES = BOX.rsplit("/sandboxes", 1)[0] + "/volumes"


async def test_a_volume_is_made_listed_told_and_deleted(client: httpx2.AsyncClient) -> None:
    made = (await client.post(VOLUMES, json={"name": "v", "size": 20_000_000})).json()
    assert (made["name"], made["size"], made["readOnly"]) == ("v", 20_000_000, False)
    assert (await client.get(VOLUMES)).json() == {"volumes": [made], "cursor": None}
    assert (await client.get(VOLUMES + "/v")).json() == made
    assert (await client.delete(VOLUMES + "/v")).json() == {"success": True}
    gone = await client.get(VOLUMES + "/v")
    assert (gone.status_code, gone.json()["code"]) == (404, "VOLUME_NOT_FOUND")


async def test_files_travel_as_raw_bytes(client: httpx2.AsyncClient) -> None:
    await client.post(VOLUMES, json={"name": "v"})
    files, data = VOLUMES + "/v/files", bytes(range(256)) * 10_000
    put = await client.put(files, params={"path": "d/f"}, content=data)
    assert (put.json()["path"], put.json()["size"]) == ("d/f", len(data))
    got = await client.get(files, params={"path": "d/f"})
    assert got.content == data
    assert got.headers["content-security-policy"] == "sandbox", "not a page of this engine"
    listed = (await client.get(files + "/list", params={"path": "d"})).json()
    assert [(f["path"], f["type"], f["size"]) for f in listed["files"]] == [
        ("d/f", "file", len(data))
    ]


async def test_refusals_are_ordinary(client: httpx2.AsyncClient) -> None:
    await client.post(VOLUMES, json={"name": "v"})
    files = VOLUMES + "/v/files"
    for answer, status, code in (
        (await client.get(files, params={"path": "none"}), 404, "FILE_NOT_FOUND"),
        (await client.get(files, params={"path": ""}), 400, "IS_DIRECTORY"),
        (await client.put(files, params={"path": "a/../b"}), 400, "VALIDATION_FAILED"),
        (await client.put(files, params={}, content=b"x"), 400, "VALIDATION_FAILED"),
        (await client.get(VOLUMES + "/w/files/list"), 404, "VOLUME_NOT_FOUND"),
        (await client.post(VOLUMES, json={"name": "v", "size": 1}), 400, "VALIDATION_FAILED"),
        (await client.post(VOLUMES, json={"name": "v", "shared": True}), 409, "FILE_EXISTS"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_files_are_moved_and_removed_and_folders_made(client: httpx2.AsyncClient) -> None:
    await client.post(VOLUMES, json={"name": "v"})
    files = VOLUMES + "/v/files"
    await client.put(files, params={"path": "a/f"}, content=b"x")
    for answer in (
        await client.post(files + "/folders", json={"path": "b/c"}),
        await client.post(files + "/move", json={"path": "a/f", "target": "b/c/g"}),
        await client.request("DELETE", files, params={"path": "a"}),
    ):
        assert answer.json() == {"success": True}
    assert (await client.get(files, params={"path": "b/c/g"})).content == b"x"
    for answer, status, code in (
        (await client.request("DELETE", files, params={"path": "b"}), 500, "FILESYSTEM_ERROR"),
        (await client.request("DELETE", files, params={"path": "a"}), 404, "FILE_NOT_FOUND"),
        (await client.request("DELETE", files), 400, "VALIDATION_FAILED"),
        (await client.post(files + "/folders", json={}), 400, "VALIDATION_FAILED"),
        (await client.post(files + "/move", json={"path": "b", "target": "../b"}), 400,
         "VALIDATION_FAILED"),
    ):  # fmt: skip
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    gone = await client.request("DELETE", files, params={"path": "b", "recursive": "true"})
    assert gone.json() == {"success": True}
    assert (await client.get(files + "/list")).json()["files"] == []


async def test_another_limit_and_what_cannot_be_published(client: httpx2.AsyncClient) -> None:
    await client.post(VOLUMES, json={"name": "v", "private": True})
    resized = await client.patch(VOLUMES + "/v", json={"size": 30_000_000})
    assert resized.json()["size"] == 30_000_000
    for answer, status, code in (
        (await client.patch(VOLUMES + "/v", json={"size": 1}), 400, "VALIDATION_FAILED"),
        (await client.patch(VOLUMES + "/v", json={}), 400, "VALIDATION_FAILED"),
        (await client.patch(VOLUMES + "/w", json={"size": 30_000_000}), 404, "VOLUME_NOT_FOUND"),
        (await client.post(VOLUMES + "/v/publish", json={"sandbox": "x"}), 404,
         "SANDBOX_NOT_FOUND"),
    ):  # fmt: skip
        assert (answer.status_code, answer.json()["code"]) == (status, code)
