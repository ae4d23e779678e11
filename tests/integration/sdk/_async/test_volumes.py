import json
from typing import Any

import pytest

import atoll
from atoll import errors
from integration.sdk.engine_double import Answer, EngineDouble

VOLUME = {
    "name": "v", "namespace": "Sandbox", "size": 2_000_000_000, "createdAt": "2026-01-01T00:00:00Z",
}  # fmt: skip
FILE = {"path": "f", "modifiedAt": "2026-01-01T00:00:00Z"}


def answer(body: Any) -> Answer:
    return Answer(json.dumps(body).encode())


async def test_a_volume_is_asked_for_with_its_size_in_bytes(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    engine.script("POST /volumes", answer(VOLUME))
    volume = await env.volumes.create("v", size="2GB", shared=True)
    assert (volume.name, volume.namespace) == ("v", "Sandbox")
    assert engine.seen[0].json() == {"name": "v", "size": 2_000_000_000, "shared": True}


@pytest.mark.parametrize("size", ["much", "2 GiB", None, True, 1.5])
async def test_what_is_no_size_costs_no_request(
    engine: EngineDouble, env: atoll.Environment, size: Any
) -> None:
    with pytest.raises(errors.ValidationFailedError):
        await env.volumes.create("v", size=size)
    assert engine.seen == []


async def test_files_are_read_written_and_listed(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    engine.script("GET /volumes/v", answer(VOLUME))
    volume = await env.volumes.get("v")
    engine.script("PUT /files", answer({"path": "f", "size": 4, "sha256": ""}))
    assert (await volume.write("f", "text")).size == 4
    assert engine.seen[1].body == b"text"
    engine.script("GET /files", Answer(b"text"))
    assert await volume.read("f") == b"text"
    engine.script("GET /list", answer({"files": [FILE]}))
    assert [found.path for found in await volume.list()] == ["f"]


async def test_a_volume_is_deleted_by_itself_or_its_name(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    engine.script("POST /volumes", answer({**VOLUME, "namespace": "Other"}))
    engine.script("DELETE /volumes/v", answer({"success": True}))
    volume = await env.volumes.create("v", namespace="Other")
    for wanted in (volume, "v"):
        await env.volumes.delete(wanted)
    assert ["Other" in seen.path for seen in engine.seen[1:]] == [True, False]


async def test_the_disk_is_asked_for_by_namespace_and_collected_for_all(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    engine.script("GET /disk", answer({"entries": [], "sizes": {"volume": 1}}))
    engine.script("POST /v2/gc", answer({"items": [], "size": 0, "dryRun": False}))
    assert (await env.disk(namespace="N", limit=5)).sizes == {"volume": 1}
    assert "/namespaces/N/" in engine.seen[0].path
    assert len(await env.gc(dry_run=False)) == 0
    assert engine.seen[1].json() == {"dryRun": False}


async def test_changes_of_a_volume_and_of_its_files_are_sent(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    engine.script("GET /volumes/v", answer(VOLUME))
    volume = await env.volumes.get("v")
    engine.script("PATCH /volumes/v", answer(VOLUME))
    engine.script("POST /publish", answer({**VOLUME, "private": True}))
    for end in ("POST /folders", "POST /move", "DELETE /files"):
        engine.script(end, answer({"success": True}))
    assert (await volume.resize("2GB")).size == 2_000_000_000
    assert (await volume.publish("box")).private
    await volume.make_dir("a/b", parents=False)
    await volume.rename("a", "c", overwrite=True)
    await volume.remove("c", recursive=True)
    _, resized, published, made, moved, removed = engine.seen
    assert resized.json() == {"size": 2_000_000_000}
    assert published.json() == {"sandbox": "box"}
    assert made.json() == {"path": "a/b", "parents": False}
    assert moved.json() == {"path": "a", "target": "c", "overwrite": True}
    assert removed.query == "path=c&recursive=true"
