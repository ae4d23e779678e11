import json
from typing import Any

import pytest

import atoll
from atoll import errors
from integration.sdk.engine_double import Answer, EngineDouble

MADE = {
    "path": "/data", "bucket": "b", "endpoint": "https://h", "provider": "s3", "active": True,
    "createdAt": "2026-01-01T00:00:00Z",
}  # fmt: skip


def answer(body: Any) -> Answer:
    return Answer(json.dumps(body).encode())


async def test_a_bucket_is_mounted_listed_and_unmounted(
    engine: EngineDouble, sandbox: atoll.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.script("POST /mounts", answer(MADE))
    engine.script("GET /mounts", answer({"mounts": [MADE]}))
    engine.script("DELETE /mounts", answer({"success": True}))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    made = await sandbox.mount_bucket(
        "b", "/data", endpoint="https://h", prefix="/p", read_only=True
    )
    assert engine.seen[0].json() == {
        "bucket": "b", "path": "/data", "endpoint": "https://h", "prefix": "/p", "readOnly": True,
        "credentials": {"accessKeyId": "key", "secretAccessKey": "secret"},
    }  # fmt: skip
    assert await sandbox.list_mounts() == [made]
    await sandbox.unmount_bucket("/data")


async def test_a_binding_is_mounted_with_no_key_of_the_caller(
    engine: EngineDouble, sandbox: atoll.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.script("POST /mounts", answer(MADE))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    await sandbox.mount_bucket(binding="DATA", path="/data")
    await sandbox.mount_bucket("DATA", "/data")
    assert [seen.json() for seen in engine.seen] == [{"binding": "DATA", "path": "/data"}] * 2


async def test_half_a_key_costs_no_request(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    with pytest.raises(errors.InvalidMountConfigError):
        await sandbox.mount_bucket("b", "/d", credentials={"access_key_id": "a"})
    assert not engine.seen
