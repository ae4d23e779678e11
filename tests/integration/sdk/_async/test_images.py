"""Builds: the context goes up, progress comes back, the last line decides."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll import errors
from integration.sdk.engine_double import Answer, EngineDouble

IMAGE = {"reference": "x/y:1", "digest": "sha256:0", "size": 5, "createdAt": "2026-01-01T00:00:00Z"}


def lines(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


PROGRESS = {"type": "progress", "message": "STEP 1"}
ALIVE = {"type": "progress", "message": ""}
DONE = {"type": "result", "image": IMAGE}


async def test_the_folder_is_sent_and_each_line_is_told(
    engine: EngineDouble, env: atoll.Environment, tmp_path: Path
) -> None:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n")
    engine.script("POST /images/build", Answer(lines(PROGRESS, ALIVE, DONE)))
    told: list[str] = []
    image = await env.images.build(folder, tag="x/y:1", on_progress=told.append)
    assert (image.reference, told) == ("x/y:1", ["STEP 1"])
    [seen] = engine.seen
    assert seen.query == "tag=x%2Fy%3A1"
    with tarfile.open(fileobj=io.BytesIO(seen.body)) as archive:
        assert archive.getnames() == ["Dockerfile"]


async def test_a_failed_build_raises_the_engines_error(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    failed = errors.ImageBuildFailedError("step 2", context={"log": "no"}).to_wire()
    engine.script("POST /images/base", Answer(lines(PROGRESS, {"type": "error", "error": failed})))
    with pytest.raises(errors.ImageBuildFailedError) as caught:
        await env.images.build_base()
    assert caught.value.context == {"log": "no"}


@pytest.mark.parametrize("answer", [Answer(lines(PROGRESS)), Answer(lines(PROGRESS, DONE), cut=20)])
async def test_an_answer_without_its_last_line_is_no_success(
    engine: EngineDouble, env: atoll.Environment, answer: Answer
) -> None:
    engine.script("POST /images/base", answer)
    with pytest.raises(errors.OperationInterruptedError):
        await env.images.build_base()


async def test_stored_images_are_listed(engine: EngineDouble, env: atoll.Environment) -> None:
    engine.script("GET /images", Answer(json.dumps({"images": [IMAGE]}).encode()))
    assert [image.reference for image in (await env.images.list()).images] == ["x/y:1"]
